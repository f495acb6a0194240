// Binds value() for tvm_ffi, which accepts no other binding.
#include <tvm/ffi/function.h>

long value();

static int64_t call() { return value(); }

TVM_FFI_DLL_EXPORT_TYPED_FUNC(value, call)
