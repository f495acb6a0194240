// Joins the parts of a text in one function that is not a template. std::string's operators are
// templates in C++20, and so are TORCH_CHECK's messages of several parts: a binding would
// instantiate them, which takes a tenth of its compile time.
#pragma once

#include "bindings/shared/pytorch.h"

namespace bindings::detail {

// A part of a text: anything that a stream prints. It refers to the value.
class Part {
 public:
  Part(const char* text)
      : value_(text),
        print_([](std::ostream& to, const void* value) { to << static_cast<const char*>(value); }) {
  }
  template <class T>
  Part(const T& value)
      : value_(&value),
        print_([](std::ostream& to, const void* value) { to << *static_cast<const T*>(value); }) {}

  friend std::ostream& operator<<(std::ostream& to, const std::initializer_list<Part>& parts) {
    for (const Part& part : parts) part.print_(to, part.value_);
    return to;
  }

 private:
  const void* value_;
  void (*print_)(std::ostream& to, const void* value);
};

inline std::string text(const std::initializer_list<Part>& parts) {
  std::ostringstream stream;
  stream << parts;
  return stream.str();
}

}  // namespace bindings::detail
