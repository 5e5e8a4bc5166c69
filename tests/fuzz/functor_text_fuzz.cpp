// A functor's text is refused, or acts on a small model: the step is right in its structure and
// types, which the pipeline verifies after every functor.
#include "functors/functor_text.h"
#include "functors/pipeline.h"
#include "fuzz/fuzz_target.h"
#include "models/elaborate.h"
#include "models/library.h"

namespace adjoint {

static Scheme tiny_model() {
  const ModelText model = find_model("char");
  return elaborate(parse_document(model.text, model.file), model.file,
                   {.preset = model.preset,
                    .settings = {{"layers", 2},
                                 {"hidden", 8},
                                 {"heads", 2},
                                 {"context", 4},
                                 {"vocab", 11},
                                 {"batch", 2},
                                 {"dropout", 0}}});
}

FUZZ_TARGET(functor_text) {
  const Functor functor = parse_functor(input, "my.functor");
  static const Scheme model = tiny_model();
  Stack stack = parse_stack("-fuse | -join_projections");
  stack.functors.insert(stack.functors.begin(),
                        {functor, Arguments(functor.name, functor.params, Term{}), false});
  const StepOptions options{.optimizer = "sgd"};
  refuse_or([&] { build_step(model, stack, options); });
  build_evaluation(model, stack, options);
}

}  // namespace adjoint
