// Joins the parts of a text in one function that is not a template. In C++20 each file instantiates
// the members of std::string that it calls, and TORCH_CHECK a function for each list of types in a
// message. Without both add2's binding takes 2.55 s to compile instead of 2.75.
#pragma once

#include "bindings/shared/pytorch.h"

namespace bindings::detail {

// A part of a text: anything that a std::ostream prints. It refers to the value, which may be a
// temporary of the same expression.
class Part {
 public:
  Part(const char* text)
      : value_(text),
        print_([](std::ostream& to, const void* part) { to << static_cast<const char*>(part); }) {}
  template <class T>
  Part(const T& value)
      : value_(&value),
        print_([](std::ostream& to, const void* part) { to << *static_cast<const T*>(part); }) {}

  friend std::ostream& operator<<(std::ostream& to, const std::initializer_list<Part>& parts) {
    for (const Part& part : parts) part.print_(to, part.value_);
    return to;
  }

 private:
  const void* value_;
  void (*print_)(std::ostream& to, const void* part);
};

inline std::string text(const std::initializer_list<Part>& parts) {
  std::ostringstream stream;
  stream << parts;
  return stream.str();
}

}  // namespace bindings::detail
