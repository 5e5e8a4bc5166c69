// A stack: functors joined by '|', found by name or read from a file, beside the defaults that
// nobody switched off. Text order decides nothing: within a phase functors are applied in the order
// of the list of all functors, so any order of a stack is the same step. A functor that is a stack
// of others stands for them.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "functors/functor.h"

namespace adjoint {

// A stack as it was written: `bf16 | checkpoint(every=2) | -fuse`, with the defaults that were not
// switched off. Unknown names are refused with the nearest one.
struct StackedFunctor {
  Functor functor;
  Arguments args;
  bool by_default = false;
  std::vector<std::string> within = {};  // the stacks of others that it came with, outermost first
  std::string print() const { return functor.name + args.print(); }
};
// Is it on by default, and for another target?
inline bool is_idle(const StackedFunctor& f, Target target) {
  return f.by_default && f.functor.on_gpu_only && target == Target::kCpu;
}
struct Stack {
  std::vector<StackedFunctor> functors;  // in the order in which a phase applies them
  std::vector<std::string> off = {};     // defaults that were switched off
};
Stack parse_stack(std::string_view text);
std::string print(const Stack& stack);  // without the defaults
// The law of the whole stack: the weakest of those that were named, exact when none was.
Law law_of(const Stack& stack);
Stack without(const Stack& stack, size_t index);
// With functors of forward schemes, which share no phase with any other, behind the rest.
Stack with_forward_functors(Stack stack, std::string_view items);
// The stack that the law of a functor compares with: without it, and with what its law says that
// another functor is told. A functor that is not there is told nothing.
Stack compared_with(const Stack& stack, size_t index);
// What that stack has in the functor's place, accumulate(n=4, tied=apart); "": nothing, so that the
// law is about the stack with the functor and the same stack without it.
std::string against(const Stack& stack, size_t index);
// The same of the whole stack: what a step has of which the law of the stack (law_of) is true,
// where it is not true of the step as it comes; "": it is. Pipelines have the bits of parts of a
// batch that one rank adds up, and the step as it comes has the batch in one part.
std::string against(const Stack& stack);

// A stack's text with every file that it names, a functor (NAME.functor) or what one is told in
// quotes (NAME.schedule), replaced by what `renamed` says.
constexpr std::string_view kFunctorFile = ".functor";
std::string with_stack_files(std::string_view stack,
                             const std::function<std::string(const std::string&)>& renamed);
// Those that the text of a functor names, which no stack can replace.
std::vector<std::string> files_named_in(std::string_view functor_text);

}  // namespace adjoint
