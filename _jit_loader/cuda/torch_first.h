// Declares what PyTorch's headers for device code need of its other headers.
namespace thrust {
template <class>
struct complex;
}
namespace c10 {
class Error;
class Scalar;
struct Device;
template <class T>
class ArrayRef;
template <class T>
class HeaderOnlyArrayRef;
template <class T>
struct alignas(sizeof(T) * 2) complex;
using IntArrayRef = ArrayRef<long>;
using IntHeaderOnlyArrayRef = HeaderOnlyArrayRef<long>;
enum class DeviceType : signed char { CPU = 0, CUDA = 1, MPS = 13, XPU = 12 };
}  // namespace c10
namespace torch::headeronly {
using c10::HeaderOnlyArrayRef;
using c10::IntHeaderOnlyArrayRef;
}  // namespace torch::headeronly
namespace at {
using namespace c10;
class Tensor;
class TensorBase;
}  // namespace at
namespace torch {
using namespace at;
}
