// Something that whoever runs the program should know, though nothing is wrong: a result comes
// about another way, which takes longer. Each text is said once, however many calls it is true of.
#pragma once
#include <functional>
#include <string>

namespace adjoint {

void note_once(const std::string& text);

// Who says it from now on, and forgets what was said; nobody: standard error. For tests.
void set_note_writer(std::function<void(const std::string&)> writer);

}  // namespace adjoint
