// Notes to the user about something that is not wrong but worth knowing, such as a slower kernel,
// and warnings of what can hardly be meant. Each text is printed once, however many calls it
// applies to, and the work goes on.
#pragma once
#include <functional>
#include <string>

namespace adjoint {

void note_once(const std::string& text);
void warn_once(const std::string& text);

// Sets where both go, and forgets which were printed; null: standard error. For tests, and for
// those of several processes that do not speak.
void set_note_writer(std::function<void(const std::string&)> writer);

}  // namespace adjoint
