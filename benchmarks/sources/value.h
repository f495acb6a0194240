// Included by the kernel alone.
constexpr long kHeaderValue = 0;
