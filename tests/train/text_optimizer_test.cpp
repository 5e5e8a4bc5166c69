// Optimizers that are written as text keep the laws that the ops keep: exact stacks give the same
// bits, and a run that stops and goes on is the run that did not stop, also where the text is a
// file of the user's own that is gone by then.
#include "train/same_steps.h"
#include "train/train_folder.h"

namespace adjoint {
namespace {

TEST(TextOptimizer, ExactStacksKeepEveryBit) {
  for (const char* optimizer : {"lion", "adafactor", "muon"}) {
    for (const double clip : {0.0, 1.0}) {
      for (const SmallModel& model : small_models()) {
        if (clip == 0 && model.name != "gpt2") continue;  // one model is enough for that
        const StepOptions options{.optimizer = optimizer, .clip = clip};
        const auto step = [&](const char* stack) {
          return build_step(model.forward, parse_stack(stack), options).scheme;
        };
        const Scheme plain = step("");
        for (const char* stack :
             {"-gang_updates | -fuse | -simplify", "checkpoint(every=1)", "checkpoint(all)",
              "offload(optimizer)", "offload(optimizer) | offload(parameters) | checkpoint(all)"}) {
          EXPECT_EQ(first_difference(plain, step(stack), model.vocab), "")
              << optimizer << " clip=" << clip << " " << model.name << " " << stack;
        }
        // Parts differ from the whole by rounding; but all ways of running them are one.
        EXPECT_EQ(first_difference(step("accumulate(3)"),
                                   step("accumulate(3) | checkpoint(all) | offload(optimizer) | "
                                        "-gang_updates | -fuse"),
                                   model.vocab),
                  "")
            << optimizer << " clip=" << clip << " " << model.name;
      }
    }
  }
}

TEST_F(TrainFolder, ARunWithATextResumesBitForBit) {
  const fs::path own = out("mine") / "my.optimizer";
  fs::create_directories(own.parent_path());
  const std::string text =
      "optimizer mine(beta = 0.9):\n  state m like p\n  state seen like rate\n"
      "  m = beta*m + g\n  seen = seen + 1\n  p = p - rate*m/(1 + seen/step)\n";
  for (const std::string& optimizer : {std::string("lion"), std::string("adafactor"),
                                       std::string("muon(steps=3)"), own.string() + "(beta=0.5)"}) {
    SCOPED_TRACE(optimizer);
    write_file_atomically(own, text);
    // 8 bits for lion's moments: hidden 64 makes them large enough.
    json more = {{"optimizer", optimizer}, {"steps", 6}, {"overwrite", true}};
    if (optimizer == "lion") {
      more["stack"] = "moments";
      more["set"] = {{"layers", 1}, {"hidden", 64}, {"heads", 2}, {"dropout", 0.1}};
    }
    train(options("whole", more));
    json first = more;
    first["stop_after"] = 3;
    train(options("parts", first));
    fs::remove(own);  // the folder has a copy
    train(resume("parts"));
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      EXPECT_EQ(read_file(out("whole") / file), read_file(out("parts") / file)) << file;
    }
  }
}

}  // namespace
}  // namespace adjoint
