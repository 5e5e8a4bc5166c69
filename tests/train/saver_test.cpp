// Saves behind the steps: the same bytes as one that was waited for, and no failure is lost.
#include "train/saver.h"

#include <gtest/gtest.h>

#include <cmath>

#include "device/parallel.h"
#include "run/random_steps.h"
#include "train/train_folder.h"

namespace adjoint {
namespace {

// Steps of a small model, and a folder to save them to.
class Saving : public testing::Test {
 protected:
  Saving() : step_(built()), run_(step_, make_plan(step_, {.threads = num_threads()})) {
    for (const char* name : {"waited", "behind"}) fs::create_directories(folder_ / name);
    steps_.begin();
  }
  static Scheme built() {
    ModelSizes sizes{.batch = 2, .context = 8};
    sizes.settings = {{"layers", 1}, {"hidden", 16}, {"heads", 2}};
    return build_step(BoundModel(find_model("char"), sizes).forward(), parse_stack(""), {}).scheme;
  }
  void step() {
    steps_.feed();
    steps_.step();
  }
  SavePaths paths(const std::string& name) const { return SavePaths(folder_ / name); }
  Saver saver(const std::string& name, Bytes room = kNoCap) {
    return {paths(name), run_, "print", -1, room};
  }
  static std::string files(const SavePaths& paths) {
    return read_file(paths.model()) + read_file(paths.optimizer());
  }
  static std::string error_of(const std::function<void()>& may_fail) {
    try {
      may_fail();
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  }

  TempFolder folder_;
  Scheme step_;
  adjoint::Run run_;
  RandomSteps steps_{run_, 1};
};

TEST_F(Saving, ACopyStaysWhatItWas) {
  step();
  save_state(paths("waited"), run_, 1, "print");
  StateCopy copy(run_);
  copy.take();
  for (int i = 0; i < 3; ++i) step();
  copy.save(paths("behind"), 1, "print");
  EXPECT_EQ(files(paths("behind")), files(paths("waited")));
}

TEST_F(Saving, BehindStepsIsWhatItWasBeforeThem) {
  step();
  save_state(paths("waited"), run_, 1, "print");
  Saver saver = this->saver("behind");
  saver.save_behind(1);
  for (int i = 0; i < 3; ++i) step();  // the state moves on while the copy is written
  saver.wait();
  EXPECT_EQ(files(paths("behind")), files(paths("waited")));
  // The next save reuses the copy's memory, and waits only for itself.
  save_state(paths("waited"), run_, 4, "print");
  saver.save_behind(4);
  step();
  saver.wait();
  EXPECT_EQ(files(paths("behind")), files(paths("waited")));
}

TEST_F(Saving, ASaveWaitsForTheOneBefore) {
  Saver saver = this->saver("behind");
  for (int i = 1; i <= 4; ++i) {
    step();
    saver.save_behind(i);
  }
  saver.save(4);  // is being written: nothing more to do
  EXPECT_EQ(saved_step(paths("behind")), 4);
  step();
  saver.save(5);
  EXPECT_EQ(saved_step(paths("behind")), 5);
  save_state(paths("waited"), run_, 5, "print");
  EXPECT_EQ(files(paths("behind")), files(paths("waited")));
}

TEST_F(Saving, WithoutRoomForACopyItIsWaitedFor) {
  step();
  Saver saver = this->saver("behind", StateCopy(run_).size() - Bytes{1});
  saver.save_behind(1);
  EXPECT_EQ(saved_step(paths("behind")), 1);
}

TEST_F(Saving, TheEndWaits) {
  step();
  { saver("behind").save_behind(1); }
  EXPECT_EQ(saved_step(paths("behind")), 1);
}

TEST_F(Saving, AFailureIsToldAndSaysWhatStays) {
  step();
  Saver saver = this->saver("behind");
  fs::remove_all(folder_ / "behind");
  for (const int step : {1, 2}) {
    saver.save_behind(step);
    EXPECT_EQ(error_of([&] { saver.wait(); }),
              (folder_ / "behind" / "model.safetensors").string() +
                  ": cannot be written: No such file or directory; nothing was saved yet");
  }
  fs::create_directories(folder_ / "behind");
  saver.save_behind(2);
  saver.wait();
  fs::remove_all(folder_ / "behind");
  saver.save_behind(3);
  const std::string why = error_of([&] {
    while (true) saver.check();
  });
  EXPECT_NE(why.find("; the save of step 2 can no longer be opened"), std::string::npos) << why;
}

TEST_F(Saving, AFailureSaysThatTheLastSaveCannotBeOpened) {
  step();
  Saver saver = this->saver("behind");
  saver.save_behind(2);
  saver.wait();
  const std::string saved = files(paths("behind"));
  fs::remove(paths("behind").manifest());
  fs::create_directories(paths("behind").manifest() / "somebody's");  // no file takes its place
  saver.save_behind(3);
  const std::string why = error_of([&] { saver.wait(); });
  EXPECT_NE(why.find("save.json: cannot be written: "), std::string::npos) << why;
  EXPECT_NE(why.find("; the save of step 2 can no longer be opened"), std::string::npos) << why;
  EXPECT_EQ(files(paths("behind")), saved);
}

TEST_F(Saving, NumbersThatAreNoneAreToldAtOnce) {
  Saver saver = this->saver("behind");
  for (const Value v : step_.inputs) {
    if (step_[v].role == Role::kParameter) run_.set_number(v, INFINITY);
  }
  EXPECT_NE(
      error_of([&] { saver.save_behind(1); }).find("no longer numbers; nothing was saved yet"),
      std::string::npos);
  EXPECT_FALSE(fs::exists(paths("behind").model()));
}

TEST_F(TrainFolder, SavingOftenChangesNothing) {
  train(options("never"));
  train(options("often", {{"save_every", 1}}));
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    EXPECT_EQ(read_file(out("never") / file), read_file(out("often") / file)) << file;
  }
}

TEST_F(TrainFolder, AFailedSaveEndsTheRunWithOneSentence) {
  Trainer trainer(resolve_config({}, options("run", {{"save_every", 1}})));
  fs::remove(SavePaths(out("run")).model());
  fs::create_directory(SavePaths(out("run")).model());  // no file takes its place
  std::string why = "no error";
  try {
    trainer.train(std::atomic<bool>(false));
  } catch (const Error& e) {
    why = e.what();
  }
  EXPECT_NE(why.find("model.safetensors: cannot be written: Is a directory; nothing was saved yet"),
            std::string::npos)
      << why;
}

}  // namespace
}  // namespace adjoint
