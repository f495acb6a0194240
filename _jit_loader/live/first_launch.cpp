// Compiles a kernel of edited device code with NVRTC when it is launched for the first time.
//
// Before its first launch of a kernel, nvcc's host code calls __cudaGetKernel(&handle, function),
// where the handle is a static variable. first_launch.py makes a library call get_kernel instead.
// The thread then holds the lock of that variable. This is not Python, because the thread would
// need the GIL, and a thread that has the GIL may be waiting for the same variable.
//
// build/byproducts.py compiles it once per cache, without CUDA's headers.
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

extern "C" {

// The kernels of one library. The arguments are those of nvrtcCreateProgram and
// nvrtcCompileProgram; first_launch.py has the same structure.
struct Kernels {
  void* nvrtc;    // from dlopen
  void* library;  // from dlopen; it depends on CUDA's runtime
  const char* source;
  const char* path;
  const char* const* header_texts;
  const char* const* header_names;
  const char* const* options;
  void* const* handles;            // the addresses of the static variables
  const char* const* expressions;  // C++ expressions that name the kernels
  int headers, option_count, count;
  Kernels* next;
};
}

namespace {

constexpr int kInvalidDeviceFunction = 98;  // cudaErrorInvalidDeviceFunction
constexpr int kCaptureModeRelaxed = 2;      // cudaStreamCaptureModeRelaxed

Kernels* all = nullptr;
pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

template <class... Arguments>
int call(void* library, const char* name, Arguments... arguments) {
  const auto function = reinterpret_cast<int (*)(Arguments...)>(dlsym(library, name));
  return function == nullptr ? -1 : function(arguments...);
}

void print_errors(const Kernels& kernels, void* program, const char* expression) {
  size_t size = 0;
  call(kernels.nvrtc, "nvrtcGetProgramLogSize", program, &size);
  char* const log = static_cast<char*>(calloc(size + 1, 1));
  if (log == nullptr) return;
  call(kernels.nvrtc, "nvrtcGetProgramLog", program, log);
  // stderr may be a pipe of 64 KB whose reader waits for the GIL, which this thread may have.
  fprintf(stderr, "jit_loader: the kernel %s does not compile:\n%.2000s\n", expression, log);
  free(log);
}

// Loads the compiled program's kernel; returns 0 or an error of CUDA's runtime.
int load(const Kernels& kernels, void* program, const char* expression, void** handle) {
  size_t size = 0;
  const char* name = nullptr;
  void* loaded = nullptr;
  if (call(kernels.nvrtc, "nvrtcGetLoweredName", program, expression, &name) != 0 ||
      call(kernels.nvrtc, "nvrtcGetCUBINSize", program, &size) != 0) {
    return kInvalidDeviceFunction;
  }
  char* const code = static_cast<char*>(malloc(size));
  if (code == nullptr) return kInvalidDeviceFunction;
  call(kernels.nvrtc, "nvrtcGetCUBIN", program, code);
  void* const none = nullptr;
  int mode = kCaptureModeRelaxed;  // a stream may be capturing a graph
  call(kernels.library, "cudaThreadExchangeStreamCaptureMode", &mode);
  int error =
      call(kernels.library, "cudaLibraryLoadData", &loaded, code, none, none, 0u, none, none, 0u);
  if (error == 0) error = call(kernels.library, "cudaLibraryGetKernel", handle, loaded, name);
  call(kernels.library, "cudaThreadExchangeStreamCaptureMode", &mode);
  free(code);
  return error;
}

int compile(const Kernels& kernels, const char* expression, void** handle) {
  void* program = nullptr;
  if (call(kernels.nvrtc, "nvrtcCreateProgram", &program, kernels.source, kernels.path,
           kernels.headers, kernels.header_texts, kernels.header_names) != 0) {
    return kInvalidDeviceFunction;
  }
  int error = kInvalidDeviceFunction;
  if (call(kernels.nvrtc, "nvrtcAddNameExpression", program, expression) == 0) {
    if (call(kernels.nvrtc, "nvrtcCompileProgram", program, kernels.option_count,
             kernels.options) == 0) {
      error = load(kernels, program, expression, handle);
    } else {
      print_errors(kernels, program, expression);
    }
  }
  // nvcc's host code ignores the error, and its launch fails with another one.
  if (error != 0) fprintf(stderr, "jit_loader: %s: CUDA error %d\n", expression, error);
  call(kernels.nvrtc, "nvrtcDestroyProgram", &program);
  return error;
}

}  // namespace

extern "C" {

void add_kernels(Kernels* kernels) {
  pthread_mutex_lock(&mutex);
  kernels->next = all;
  all = kernels;
  pthread_mutex_unlock(&mutex);
}

// Has the type of __cudaGetKernel.
int get_kernel(void** handle, const void* function) {
  pthread_mutex_lock(&mutex);
  int error = kInvalidDeviceFunction;
  for (Kernels* kernels = all; kernels != nullptr; kernels = kernels->next) {
    for (int i = 0; i < kernels->count; ++i) {
      if (kernels->handles[i] != handle) continue;
      const char* const expression = kernels->expressions[i];
      error = expression == nullptr ? call(kernels->library, "__cudaGetKernel", handle, function)
                                    : compile(*kernels, expression, handle);
    }
  }
  pthread_mutex_unlock(&mutex);
  return error;
}
}
