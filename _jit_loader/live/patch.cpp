// Gives the launches of a loaded library other kernels than its own.
//
// Before its first launch of a kernel, nvcc's host code calls __cudaGetKernel(&handle, function),
// where the handle is a static variable that every launch reads. patch.py makes a library call
// get_kernel instead, and writes into the handles of the kernels that were launched before. A
// kernel that has not been launched is compiled with NVRTC at its first launch: an op has one for
// each dtype and layout, one takes 0.06 s, and a program launches few of them.
//
// The thread of a first launch holds the lock of the handle. This is not Python, because the thread
// would need the GIL, and a thread that has the GIL may be waiting for the same handle.
//
// build/byproducts.py compiles it once per cache, without CUDA's headers.
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern "C" {

// The new kernels of one source. The arguments are those of nvrtcCreateProgram and
// nvrtcCompileProgram; patch.py has the same structure.
struct Kernels {
  void* nvrtc;    // from dlopen
  void* library;  // from dlopen; it depends on CUDA's runtime
  void* loaded;   // code, once CUDA has loaded it
  const char* source;
  const char* path;
  const char* launched;  // the path of a file, which gets the names of kernels that were launched
  const void* code;      // compiled before
  const char* const* header_texts;
  const char* const* header_names;
  const char* const* options;
  const char* const* names;        // those of the kernels in code, else null
  const char* const* expressions;  // C++ expressions that name the other kernels
  void** const* handles;           // the static variables of the launches
  const void* const* functions;    // by which host code names the kernels
  void** kernels;                  // what the launches use, once known
  int headers, option_count, count;
  Kernels* next;
};
}

namespace {

constexpr int kInvalidDeviceFunction = 98;  // cudaErrorInvalidDeviceFunction
constexpr int kLaunched = -2;
constexpr int kCaptureModeRelaxed = 2;  // cudaStreamCaptureModeRelaxed
// The attributes of a kernel that host code sets: dynamic shared memory, its share of the cache,
// clusters of any size, their scheduling (CUfunction_attribute).
constexpr int kAttributes[] = {8, 9, 14, 15};

Kernels* all = nullptr;
void* runtime = nullptr;  // a library that depends on CUDA's runtime
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

// Finds a kernel of compiled code, which it loads once; returns 0 or an error of CUDA's runtime.
int load(const void* code, void** loaded, const char* name, void** kernel) {
  void* const none = nullptr;
  int mode = kCaptureModeRelaxed, error = 0;  // a stream may be capturing a graph
  call(runtime, "cudaThreadExchangeStreamCaptureMode", &mode);
  if (*loaded == nullptr) {
    error = call(runtime, "cudaLibraryLoadData", loaded, code, none, none, 0u, none, none, 0u);
  }
  if (error == 0) error = call(runtime, "cudaLibraryGetKernel", kernel, *loaded, name);
  call(runtime, "cudaThreadExchangeStreamCaptureMode", &mode);
  return error;
}

// Notes a kernel that is launched for the first time, so that the next edit is compiled with it.
void note(const Kernels& kernels, const char* name) {
  FILE* const file = fopen(kernels.launched, "a");
  if (file == nullptr) return;
  fprintf(file, "%s\n", name);
  fclose(file);
}

int load_program(const Kernels& kernels, void* program, const char* expression, void** kernel) {
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
  note(kernels, name);
  const int error = load(code, &loaded, name, kernel);
  free(code);
  return error;
}

int compile(const Kernels& kernels, const char* expression, void** kernel) {
  void* program = nullptr;
  if (call(kernels.nvrtc, "nvrtcCreateProgram", &program, kernels.source, kernels.path,
           kernels.headers, kernels.header_texts, kernels.header_names) != 0) {
    return kInvalidDeviceFunction;
  }
  int error = kInvalidDeviceFunction;
  if (call(kernels.nvrtc, "nvrtcAddNameExpression", program, expression) == 0) {
    if (call(kernels.nvrtc, "nvrtcCompileProgram", program, kernels.option_count,
             kernels.options) == 0) {
      error = load_program(kernels, program, expression, kernel);
    } else {
      print_errors(kernels, program, expression);
    }
  }
  // nvcc's host code ignores the error, and its launch fails with another one.
  if (error != 0) fprintf(stderr, "jit_loader: %s: CUDA error %d\n", expression, error);
  call(kernels.nvrtc, "nvrtcDestroyProgram", &program);
  return error;
}

// Sets the attributes that the program has set on a library's own kernel on a new one too.
void copy_attributes(const void* function, void* kernel) {
  void* own = nullptr;
  int devices = 0;
  if (call(runtime, "__cudaGetKernel", &own, function) != 0) return;
  call(runtime, "cudaGetDeviceCount", &devices);
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY);
  for (int device = 0; driver != nullptr && device < devices; ++device) {
    for (const int attribute : kAttributes) {
      int wanted = 0, present = 0;
      if (call(driver, "cuKernelGetAttribute", &wanted, attribute, own, device) == 0 &&
          call(driver, "cuKernelGetAttribute", &present, attribute, kernel, device) == 0 &&
          wanted != present) {
        call(driver, "cuKernelSetAttribute", attribute, wanted, kernel, device);
      }
    }
  }
}

// Finds the kernel of a launch; returns 0 or an error of CUDA's runtime.
int find(Kernels& kernels, int i) {
  void** const kernel = &kernels.kernels[i];
  if (*kernel != nullptr) return 0;
  const char* const name = kernels.names[i];
  const int error = name == nullptr ? compile(kernels, kernels.expressions[i], kernel)
                                    : load(kernels.code, &kernels.loaded, name, kernel);
  if (error == 0) copy_attributes(kernels.functions[i], *kernel);
  return error;
}

// Puts the kernel that replaces the one of a function in its place; returns 0 or an error of CUDA's
// runtime.
int replace(const void** function) {
  const void* const own = *function;
  int error = 0;
  pthread_mutex_lock(&mutex);
  for (Kernels* kernels = all; kernels != nullptr && *function == own; kernels = kernels->next) {
    for (int i = 0; i < kernels->count && *function == own && error == 0; ++i) {
      if (kernels->functions[i] != own) continue;
      error = find(*kernels, i);
      if (error == 0) *function = kernels->kernels[i];
    }
  }
  pthread_mutex_unlock(&mutex);
  return error;
}

bool contains(const Kernels* kernels, void** handle) {
  for (; kernels != nullptr; kernels = kernels->next) {
    for (int i = 0; i < kernels->count; ++i) {
      if (kernels->handles[i] == handle) return true;
    }
  }
  return false;
}

// Removes all Kernels of a library, and gives the launches that are not in `kept` its own kernels.
void remove_from(void* library, const Kernels* kept) {
  for (Kernels** link = &all; *link != nullptr;) {
    Kernels* const kernels = *link;
    if (kernels->library != library) {
      link = &kernels->next;
      continue;
    }
    for (int i = 0; i < kernels->count; ++i) {
      void** const handle = kernels->handles[i];
      if (*handle == nullptr || contains(kept, handle)) continue;
      call(runtime, "__cudaGetKernel", handle, kernels->functions[i]);
    }
    *link = kernels->next;
  }
}

struct Dim3 {
  unsigned x, y, z;
};

}  // namespace

extern "C" {

// Says which library depends on CUDA's runtime, before a library calls the functions below.
void use_runtime(void* library) {
  pthread_mutex_lock(&mutex);
  runtime = library;
  pthread_mutex_unlock(&mutex);
}

// Replaces the kernels of a library's launches by those of a list. Returns 0, or an error of CUDA's
// runtime; kLaunched if a kernel that is not in the compiled code has been launched meanwhile.
// After an error nothing has changed.
int add_kernels(Kernels* added) {
  pthread_mutex_lock(&mutex);
  int error = 0;
  for (Kernels* kernels = added; kernels != nullptr; kernels = kernels->next) {
    for (int i = 0; i < kernels->count && error == 0; ++i) {
      if (*kernels->handles[i] == nullptr) continue;
      error = kernels->names[i] == nullptr ? kLaunched : find(*kernels, i);
    }
  }
  if (error == 0) {
    Kernels* last = added;
    for (Kernels* kernels = added; kernels != nullptr; kernels = kernels->next) {
      last = kernels;
      for (int i = 0; i < kernels->count; ++i) {
        if (*kernels->handles[i] != nullptr) *kernels->handles[i] = kernels->kernels[i];
      }
    }
    remove_from(added->library, added);
    last->next = all;
    all = added;
  }
  pthread_mutex_unlock(&mutex);
  return error;
}

// Gives a library's launches its own kernels again.
void remove_kernels(void* library) {
  pthread_mutex_lock(&mutex);
  remove_from(library, nullptr);
  pthread_mutex_unlock(&mutex);
}

// The functions below have the names and types of those of CUDA's runtime that take a kernel; with
// a prefix, because a library that is opened later must not find them.

int jit_loader___cudaGetKernel(void** handle, const void* function) {
  pthread_mutex_lock(&mutex);
  int error = 0;
  bool is_replaced = false;
  for (Kernels* kernels = all; kernels != nullptr && !is_replaced; kernels = kernels->next) {
    for (int i = 0; i < kernels->count && !is_replaced; ++i) {
      if (kernels->handles[i] != handle) continue;
      is_replaced = true;
      error = find(*kernels, i);
      if (error == 0) *handle = kernels->kernels[i];
    }
  }
  // With the lock, or add_kernels might see an empty handle that gets the library's kernel later.
  if (!is_replaced) error = call(runtime, "__cudaGetKernel", handle, function);
  pthread_mutex_unlock(&mutex);
  return error;
}

int jit_loader_cudaFuncSetAttribute(const void* function, int attribute, int value) {
  const void* kernel = function;
  int error = replace(&kernel);
  if (error == 0) error = call(runtime, "cudaFuncSetAttribute", function, attribute, value);
  if (error != 0 || kernel == function) return error;
  return call(runtime, "cudaFuncSetAttribute", kernel, attribute, value);
}

#define LAUNCH(name)                                                                            \
  int jit_loader_##name(const void* function, Dim3 grid, Dim3 block, void** arguments,          \
                        size_t shared, void* stream) {                                          \
    const int error = replace(&function);                                                       \
    return error != 0 ? error                                                                   \
                      : call(runtime, #name, function, grid, block, arguments, shared, stream); \
  }
LAUNCH(cudaLaunchKernel)
LAUNCH(cudaLaunchCooperativeKernel)

// These have up to three arguments after the function.
#define SECOND_ARGUMENT(name)                                                           \
  int jit_loader_##name(void* first, const void* function, void* a, void* b, void* c) { \
    const int error = replace(&function);                                               \
    return error != 0 ? error : call(runtime, #name, first, function, a, b, c);         \
  }
SECOND_ARGUMENT(cudaLaunchKernelExC)
SECOND_ARGUMENT(cudaFuncGetAttributes)
SECOND_ARGUMENT(cudaOccupancyMaxActiveBlocksPerMultiprocessor)
SECOND_ARGUMENT(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)
SECOND_ARGUMENT(cudaOccupancyAvailableDynamicSMemPerBlock)
SECOND_ARGUMENT(cudaOccupancyMaxPotentialClusterSize)
SECOND_ARGUMENT(cudaOccupancyMaxActiveClusters)
}
