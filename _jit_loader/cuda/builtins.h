// What g++ has built in and NVRTC lacks, and what the headers that are empty for NVRTC declare.
#define __null 0L
#define CUDART_VERSION (__CUDACC_VER_MAJOR__ * 1000 + __CUDACC_VER_MINOR__ * 10)
#define __extension__
#define __asm__ asm
#define __builtin_expect(e, c) (e)
#define __builtin_memcpy memcpy
#define __builtin_memset memset
#define __builtin_huge_valf() __builtin_bit_cast(float, 0x7f800000)
#define __builtin_huge_val() __builtin_bit_cast(double, 0x7ff0000000000000)
#define __builtin_huge_vall() ((long double)__builtin_huge_val())
#define __builtin_inff __builtin_huge_valf
#define __builtin_inf __builtin_huge_val
#define __builtin_nanf(x) __builtin_bit_cast(float, 0x7fc00000)
#define __builtin_nan(x) __builtin_bit_cast(double, 0x7ff8000000000000)
#define __builtin_nanl(x) ((long double)__builtin_nan(x))
#define __builtin_nansf(x) __builtin_bit_cast(float, 0x7fa00000)
#define __builtin_nans(x) __builtin_bit_cast(double, 0x7ff4000000000000)
#define __builtin_nansl(x) ((long double)__builtin_nans(x))
namespace jit_loader {
template <class T>
constexpr int popcount(T x) {
  return x ? (x & 1) + popcount(T(x >> 1)) : 0;
}
template <class T>
constexpr int ctz(T x) {
  return x & 1 ? 0 : 1 + ctz(T(x >> 1));
}
template <class T>
constexpr int clz(T x) {
  return x ? clz(T(x >> 1)) - 1 : 8 * int(sizeof(T));
}
}  // namespace jit_loader
#define __builtin_popcount(x) jit_loader::popcount((unsigned)(x))
#define __builtin_popcountl(x) jit_loader::popcount((unsigned long)(x))
#define __builtin_popcountll __builtin_popcountl
#define __builtin_ctz(x) jit_loader::ctz((unsigned)(x))
#define __builtin_ctzl(x) jit_loader::ctz((unsigned long)(x))
#define __builtin_ctzll __builtin_ctzl
#define __builtin_clz(x) jit_loader::clz((unsigned)(x))
#define __builtin_clzl(x) jit_loader::clz((unsigned long)(x))
#define __builtin_clzll __builtin_clzl
namespace jit_loader {
template <class T, T... i>
struct numbers {
  template <template <class U, U...> class A>
  using in = A<T, i...>;
};
template <class, class>
struct joined;
template <class T, T... i, T... j>
struct joined<numbers<T, i...>, numbers<T, j...>> {
  using type = numbers<T, i..., (T(sizeof...(i)) + j)...>;
};
template <class T, unsigned long n>
struct below {
  using half = typename below<T, n / 2>::type;
  using type = typename joined<half, typename below<T, n - n / 2>::type>::type;
};
template <class T>
struct below<T, 0> {
  using type = numbers<T>;
};
template <class T>
struct below<T, 1> {
  using type = numbers<T, 0>;
};
}  // namespace jit_loader
template <template <class T, T...> class A, class T, T n>
using __make_integer_seq = typename jit_loader::below<T, n>::type::template in<A>;
extern "C" __device__ void __assert_fail(const char*, const char*, unsigned, const char*) noexcept;
typedef unsigned int uint;
typedef unsigned short ushort;
typedef unsigned long ulong;
typedef long ssize_t;
typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
#include <stddef.h>
#include <stdint-gcc.h>
namespace std {
using nullptr_t = decltype(nullptr);
template <class>
struct char_traits;
template <class>
class allocator;
template <class, class, class>
class basic_string;
typedef basic_string<char, char_traits<char>, allocator<char>> string;
template <class, class>
class vector;
template <class>
struct hash;
template <class>
class complex;
template <class, class>
class basic_istream;
template <class, class>
class basic_ostream;
typedef basic_ostream<char, char_traits<char>> ostream;
}  // namespace std
namespace __gnu_cxx {
template <class, class>
class __normal_iterator;
}

// As in <type_traits>, which takes NVRTC half of the time that it needs for a small kernel.
namespace jit_loader {
template <bool, class T = void>
struct enable_if {};
template <class T>
struct enable_if<true, T> {
  using type = T;
};
template <bool condition, class T = void>
using enable_if_t = typename enable_if<condition, T>::type;
template <class T>
constexpr int kind = 0;  // 1: integral, 2: floating-point
#define JIT_LOADER_KIND(T, VALUE) \
  template <>                     \
  constexpr int kind<T> = VALUE;
JIT_LOADER_KIND(bool, 1)
JIT_LOADER_KIND(char, 1)
JIT_LOADER_KIND(signed char, 1)
JIT_LOADER_KIND(unsigned char, 1)
JIT_LOADER_KIND(wchar_t, 1)
JIT_LOADER_KIND(char16_t, 1)
JIT_LOADER_KIND(char32_t, 1)
#ifdef __cpp_char8_t
JIT_LOADER_KIND(char8_t, 1)
#endif
JIT_LOADER_KIND(short, 1)
JIT_LOADER_KIND(unsigned short, 1)
JIT_LOADER_KIND(int, 1)
JIT_LOADER_KIND(unsigned int, 1)
JIT_LOADER_KIND(long, 1)
JIT_LOADER_KIND(unsigned long, 1)
JIT_LOADER_KIND(long long, 1)
JIT_LOADER_KIND(unsigned long long, 1)
JIT_LOADER_KIND(float, 2)
JIT_LOADER_KIND(double, 2)
JIT_LOADER_KIND(long double, 2)
template <class T, class U>
constexpr bool is_same_float = false;
template <>
constexpr bool is_same_float<float, float> = true;
template <>
constexpr bool is_same_float<double, double> = true;
template <>
constexpr bool is_same_float<long double, long double> = true;
template <class T>
struct promoted {
  using type = double;
};
template <>
struct promoted<float> {
  using type = float;
};
template <class T>
using promote = typename promoted<T>::type;
template <class T, class U>
using both = decltype(promote<T>() + promote<U>());
template <class T, class U>
using if_mixed = enable_if_t<kind<T> && kind<U> && !is_same_float<T, U>, both<T, U>>;
}  // namespace jit_loader
// C++'s overloads of C's functions: NVRTC's pow(float, int) is not nvcc's.
// clang-format off
#define JIT_LOADER_ONE(X) \
  X(acos) X(acosh) X(asin) X(asinh) X(atan) X(atanh) X(cbrt) X(ceil) X(cos) X(cosh) X(erf) \
  X(erfc) X(exp) X(exp2) X(expm1) X(floor) X(lgamma) X(log) X(log10) X(log1p) X(log2) X(logb) \
  X(nearbyint) X(rint) X(round) X(sin) X(sinh) X(sqrt) X(tan) X(tanh) X(tgamma) X(trunc) X(fabs) \
  X(ilogb) X(llrint) X(llround) X(lrint) X(lround)
// clang-format on
#define JIT_LOADER_TWO(X) \
  X(pow) X(fmod) X(atan2) X(hypot) X(fmin) X(fmax) X(fdim) X(remainder) X(nextafter) X(copysign)
#define JIT_LOADER_PREDICATES(X) X(isnan) X(isinf) X(isfinite) X(signbit)
#define JIT_LOADER_OTHER(X) X(frexp) X(ldexp) X(modf) X(scalbn) X(scalbln) X(fma) X(remquo)
#define JIT_LOADER_WITHOUT_F(X) \
  X(abs) X(labs) X(llabs) X(memcpy) X(memset) X(printf) X(malloc) X(free)
#define JIT_LOADER_DEFINE_ONE(NAME)                                                           \
  template <class T>                                                                          \
  inline jit_loader::enable_if_t<jit_loader::kind<T> == 1, decltype(::NAME(0.0))> NAME(T x) { \
    return ::NAME(double(x));                                                                 \
  }                                                                                           \
  namespace std {                                                                             \
  using ::NAME;                                                                               \
  using ::NAME##f;                                                                            \
  }
#define JIT_LOADER_DEFINE_TWO(NAME)                                            \
  template <class T, class U>                                                  \
  inline jit_loader::if_mixed<T, U> jit_loader_##NAME(T a, U b) {              \
    using R = jit_loader::both<T, U>;                                          \
    return ::NAME(R(a), R(b));                                                 \
  }                                                                            \
  inline float jit_loader_##NAME(float a, float b) { return ::NAME(a, b); }    \
  inline double jit_loader_##NAME(double a, double b) { return ::NAME(a, b); } \
  namespace std {                                                              \
  using ::jit_loader_##NAME;                                                   \
  using ::NAME##f;                                                             \
  }
#define JIT_LOADER_DEFINE_PREDICATE(NAME)                                                 \
  template <class T>                                                                      \
  inline jit_loader::enable_if_t<jit_loader::kind<T> == 1, bool> jit_loader_##NAME(T x) { \
    return ::NAME(double(x));                                                             \
  }                                                                                       \
  inline bool jit_loader_##NAME(float x) { return ::NAME(x); }                            \
  inline bool jit_loader_##NAME(double x) { return ::NAME(x); }                           \
  namespace std {                                                                         \
  using ::jit_loader_##NAME;                                                              \
  }
#define JIT_LOADER_USE(NAME) using ::NAME;
#define JIT_LOADER_USE_WITH_F(NAME) \
  using ::NAME;                     \
  using ::NAME##f;
JIT_LOADER_ONE(JIT_LOADER_DEFINE_ONE)
JIT_LOADER_TWO(JIT_LOADER_DEFINE_TWO)
JIT_LOADER_PREDICATES(JIT_LOADER_DEFINE_PREDICATE)
template <class T, class U, class V>
inline jit_loader::enable_if_t<jit_loader::kind<T> && jit_loader::kind<U> && jit_loader::kind<V>,
                               jit_loader::both<jit_loader::both<T, U>, V>>
fma(T a, U b, V c) {
  using R = jit_loader::both<jit_loader::both<T, U>, V>;
  return ::fma(R(a), R(b), R(c));
}
namespace std {
JIT_LOADER_OTHER(JIT_LOADER_USE_WITH_F)
JIT_LOADER_WITHOUT_F(JIT_LOADER_USE)
}  // namespace std
#if __cplusplus > 201703L  // as in libstdc++
namespace std {
template <class T>
constexpr T __lerp(T a, T b, T t) noexcept {
  if ((a <= 0 && b >= 0) || (a >= 0 && b <= 0)) return t * b + (1 - t) * a;
  if (t == 1) return b;
  const T x = a + t * (b - a);
  return (t > 1) == (b > a) ? (b < x ? x : b) : (b > x ? x : b);
}
constexpr float lerp(float a, float b, float t) noexcept { return __lerp(a, b, t); }
constexpr double lerp(double a, double b, double t) noexcept { return __lerp(a, b, t); }
template <class T, class U, class V>
constexpr jit_loader::enable_if_t<jit_loader::kind<T> && jit_loader::kind<U> && jit_loader::kind<V>,
                                  jit_loader::both<jit_loader::both<T, U>, V>>
lerp(T a, U b, V t) noexcept {
  return __lerp<jit_loader::both<jit_loader::both<T, U>, V>>(a, b, t);
}
}  // namespace std
using std::lerp;
#endif
#define pow jit_loader_pow
#define fmod jit_loader_fmod
#define atan2 jit_loader_atan2
#define hypot jit_loader_hypot
#define fmin jit_loader_fmin
#define fmax jit_loader_fmax
#define fdim jit_loader_fdim
#define remainder jit_loader_remainder
#define nextafter jit_loader_nextafter
#define copysign jit_loader_copysign
#define isnan jit_loader_isnan
#define isinf jit_loader_isinf
#define isfinite jit_loader_isfinite
#define signbit jit_loader_signbit
