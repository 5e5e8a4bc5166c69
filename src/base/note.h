// Notes to the user about something that is not wrong but worth knowing, such as a slower kernel.
// Each text is printed once, however many calls it applies to.
#pragma once
#include <functional>
#include <string>

namespace adjoint {

void note_once(const std::string& text);

// Sets where notes go, and forgets which were printed; null: standard error. For tests.
void set_note_writer(std::function<void(const std::string&)> writer);

}  // namespace adjoint
