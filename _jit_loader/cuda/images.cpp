// Takes the place of functions of CUDA's runtime in a library that has new device code.
//
// A library registers its device code, one fatbin, and then its kernels. embedded.py renames these
// calls in a copy of the library, from __cuda... to __live.... The functions here register several
// fatbins in place of the library's, and each kernel with the fatbin that has its code.
//
// build/helpers.py compiles it once per cache.
#include <string.h>

namespace {

struct Record {  // of CUDA's runtime
  int magic, version;
  const char* fatbin;
  void* unused;
};

typedef void** Handle;
typedef Handle Register(const Record* record);
typedef void RegisterKernel(Handle handle, const char* function, char* device_function,
                            const char* name, int thread_limit, void* thread, void* block,
                            void* block_size, void* grid_size, int* warp_size);
typedef void Finish(Handle handle);

struct Images {
  int count, kernels;
  const Record* records;  // count
  Handle* handles;        // count; set here
  const char** names;     // kernels
  const int* image_of;    // kernels: the index of the image that has the code
  Register* add_image;    // CUDA's own functions
  RegisterKernel* add_kernel;
  Finish* finish;
  Finish* remove;
};

Images* next = nullptr;  // of the library that is opened next

Images* images_of(Handle handle) { return reinterpret_cast<Images*>(handle); }

}  // namespace

extern "C" {

void use_images(Images* images) { next = images; }

Handle __liveRegisterFatBinary(const Record*) {
  for (int i = 0; i < next->count; i++) next->handles[i] = next->add_image(&next->records[i]);
  return reinterpret_cast<Handle>(next);
}

void __liveRegisterFunction(Handle handle, const char* function, char* device_function,
                            const char* name, int thread_limit, void* thread, void* block,
                            void* block_size, void* grid_size, int* warp_size) {
  const Images* images = images_of(handle);
  int image = 0;
  for (int i = 0; i < images->kernels; i++) {
    if (strcmp(images->names[i], name) == 0) image = images->image_of[i];
  }
  images->add_kernel(images->handles[image], function, device_function, name, thread_limit, thread,
                     block, block_size, grid_size, warp_size);
}

void __liveRegisterFatBinaryEnd(Handle handle) {
  const Images* images = images_of(handle);
  for (int i = 0; i < images->count; i++) images->finish(images->handles[i]);
}

void __liveUnregisterFatBinary(Handle handle) {
  const Images* images = images_of(handle);
  for (int i = 0; i < images->count; i++) images->remove(images->handles[i]);
}

}  // extern "C"
