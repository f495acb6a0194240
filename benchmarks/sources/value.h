// Only the kernel includes this header.
constexpr long kHeaderValue = 0;
