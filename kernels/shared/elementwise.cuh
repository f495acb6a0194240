// out[i] = Formula()(in[i]...) for every i in [0, n), on the current CUDA device.
//
//   elementwise<Formula>(where, n, out, in...)
//
// Formula is a struct with a templated operator() that computes in double or float: 16-bit inputs
// are widened to float, and the result is rounded once. `out` is an array, or a Pair of arrays if
// the formula returns a Pair. All arrays hold n contiguous elements of one type. `out` may be one
// of the inputs, but must not partly overlap one.
//
// A thread usually has one 16-byte vector of each array: an addition reaches 4.41 TB/s on an H200
// (by hand, on 2026-11-21), while a grid-stride loop with 8 blocks per multiprocessor reaches 4.09,
// and one float per thread 2.32 (2.92 in blocks of 1024). A block has 128 threads: a sigmoid takes
// 1.02 times as long with 256, and 1.05 with 512; an op with two inputs takes the same time with
// each. Arrays that are not aligned to 16 bytes are accessed element by element.
#pragma once

#include "kernels/shared/common.cuh"
#include "kernels/shared/pair.h"

// A variant of an op may define another value: load_op("add2", defines={"THREADS_PER_BLOCK": 256}),
// as examples/tune_add2.py does.
#ifndef THREADS_PER_BLOCK
#define THREADS_PER_BLOCK 128
#endif

namespace kernels {

constexpr int kThreadsPerBlock = THREADS_PER_BLOCK;
static_assert(kThreadsPerBlock % 32 == 0 && kThreadsPerBlock >= 32 && kThreadsPerBlock <= 1024,
              "THREADS_PER_BLOCK must be a multiple of 32 from 32 to 1024");

// The number of elements in 16 bytes.
template <class T>
constexpr int kVectorSize = 16 / sizeof(T);

// 16 bytes of an array, which a thread loads or stores in one instruction.
template <class T>
struct AlignedVector {
  T value[kVectorSize<T>];
};

// How many vectors of each array a thread has. An op with one 16-bit input and one output moves too
// few bytes per thread: a sigmoid of 2^28 elements takes 289 us with one vector, 261 with two and
// 271 with four (floats 503, 508 and 512). With a third array one vector is enough. A variant may
// define VECTORS_PER_THREAD, which then applies to all types and numbers of arrays.
template <class T, int arrays>
#ifdef VECTORS_PER_THREAD
constexpr int kVectorsPerThread = VECTORS_PER_THREAD;
#else
constexpr int kVectorsPerThread = arrays == 2 && sizeof(T) == 2 ? 2 : 1;
#endif

template <class Out>
constexpr int kOutputs = 1;
template <class T>
constexpr int kOutputs<Pair<T>> = 2;

// The distance between two vectors of a thread: the first vectors of a block's threads are
// adjacent.
template <class T>
constexpr int64_t kStride = int64_t{kThreadsPerBlock} * kVectorSize<T>;

// The cast to uint4 gives one 16-byte instruction, for 16-bit types too.
template <class T>
__device__ AlignedVector<T> load_vector(const T* from) {
  const uint4 bits = *reinterpret_cast<const uint4*>(from);
  AlignedVector<T> vector;
  memcpy(&vector, &bits, sizeof(bits));
  return vector;
}

template <class T>
__device__ void store_vector(T* to, const AlignedVector<T>& vector) {
  uint4 bits;
  memcpy(&bits, &vector, sizeof(bits));
  *reinterpret_cast<uint4*>(to) = bits;
}

template <class T>
__device__ void store(T* to, int64_t i, Accumulate<T> value) {
  to[i] = narrow<T>(value);
}

template <class T, class A>
__device__ void store(Pair<T*> to, int64_t i, Pair<A> value) {
  store(to.first, i, value.first);
  store(to.second, i, value.second);
}

// Rounds and stores one vector of results, the first at to[i].
template <class T>
__device__ void store_results(T* to, int64_t i, const Accumulate<T>* results) {
  AlignedVector<T> vector;
#pragma unroll
  for (int element = 0; element < kVectorSize<T>; ++element)
    vector.value[element] = narrow<T>(results[element]);
  store_vector(to + i, vector);
}

template <class T, class A>
__device__ void store_results(Pair<T*> to, int64_t i, const Pair<A>* results) {
  A first[kVectorSize<T>], second[kVectorSize<T>];
#pragma unroll
  for (int element = 0; element < kVectorSize<T>; ++element) {
    first[element] = results[element].first;
    second[element] = results[element].second;
  }
  store_results(to.first, i, first);
  store_results(to.second, i, second);
}

template <class T, int count>
struct Vectors {
  AlignedVector<T> at[count];
};

template <int count, class T>
__device__ Vectors<T, count> load_vectors(const T* from) {
  Vectors<T, count> vectors;
#pragma unroll
  for (int v = 0; v < count; ++v) vectors.at[v] = load_vector(from + v * kStride<T>);
  return vectors;
}

// A thread loads all its vectors before it stores the first, so that the loads overlap.
template <class Formula, class T, int count, class Out, class... In>
__device__ void apply_to_vectors(int64_t begin, Out out, const Vectors<In, count>&... in) {
#pragma unroll
  for (int v = 0; v < count; ++v) {
    decltype(Formula()(widen(in.at[0].value[0])...)) results[kVectorSize<T>];
#pragma unroll
    for (int element = 0; element < kVectorSize<T>; ++element) {
      results[element] = Formula()(widen(in.at[v].value[element])...);
    }
    store_results(out, begin + v * kStride<T>, results);
  }
}

template <class Formula, class T, class Out, class... In>
__global__ void __launch_bounds__(kThreadsPerBlock)
    elementwise_vectors(int64_t n, Out out, const In*... in) {
  constexpr int count = kVectorsPerThread<T, kOutputs<Out> + sizeof...(In)>;
  const int64_t begin = blockIdx.x * (count * kStride<T>)+threadIdx.x * kVectorSize<T>;
  if (begin + (count - 1) * kStride<T> + kVectorSize<T> <= n) {
    apply_to_vectors<Formula, T, count>(begin, out, load_vectors<count>(in + begin)...);
    return;
  }
  for (int64_t first = begin; first < n; first += kStride<T>) {
    for (int64_t i = first; i < n && i < first + kVectorSize<T>; ++i) {
      store(out, i, Formula()(widen(in[i])...));
    }
  }
}

template <class Formula, class T, class Out, class... In>
__global__ void __launch_bounds__(kThreadsPerBlock)
    elementwise_scalars(int64_t n, Out out, const In*... in) {
  constexpr int count = kVectorsPerThread<T, kOutputs<Out> + sizeof...(In)> * kVectorSize<T>;
  int64_t i = int64_t{blockIdx.x} * kThreadsPerBlock * count + threadIdx.x;
#pragma unroll
  for (int element = 0; element < count; ++element, i += kThreadsPerBlock) {
    if (i < n) store(out, i, Formula()(widen(in[i])...));
  }
}

// The bitwise OR of the addresses: a multiple of 16 if each of them is.
template <class T>
uintptr_t address_bits(T* array) {
  return reinterpret_cast<uintptr_t>(array);
}

template <class T>
uintptr_t address_bits(Pair<T*> arrays) {
  return address_bits(arrays.first) | address_bits(arrays.second);
}

template <class Formula, class Out, class T, class... In>
void elementwise(Cuda where, int64_t n, Out out, const T* first, const In*... rest) {
  if (n == 0) return;
  constexpr int64_t per_block =
      kVectorsPerThread<T, kOutputs<Out> + 1 + sizeof...(In)> * kStride<T>;
  const unsigned grid = blocks_for(n, per_block);
  const bool aligned =
      (((address_bits(out) | address_bits(first)) | ... | address_bits(rest)) % 16) == 0;
  const auto kernel = aligned ? elementwise_vectors<Formula, T, Out, T, In...>
                              : elementwise_scalars<Formula, T, Out, T, In...>;
  kernel<<<grid, kThreadsPerBlock, 0, stream_of(where)>>>(n, out, first, rest...);
  check_launch(__PRETTY_FUNCTION__);
}

}  // namespace kernels
