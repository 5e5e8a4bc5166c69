// A run's folder under fire: a writer that is killed at every call that matters, readers at any
// moment, folders of before there were manifests, and files that somebody else put there.
#include "train/store.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <random>

#include "device/parallel.h"
#include "run/random_steps.h"
#include "train/generate.h"
#include "train/saver.h"
#include "train/train_folder.h"

// The calls that make a save durable come through here, in this program; a child of a test dies at
// the one that its test chose, and files of the chosen name move nowhere.
namespace {
int calls_left = -1;         // until death; negative: immortal
std::string_view immovable;  // the name that no file moves to; empty: all do
void may_die() {
  if (calls_left > 0 && --calls_left == 0) ::kill(::getpid(), SIGKILL);
}
template <class F>
F next(const char* name) {
  return reinterpret_cast<F>(::dlsym(RTLD_NEXT, name));
}
}  // namespace
extern "C" {
int fsync(int file) {
  static const auto real = next<int (*)(int)>("fsync");
  may_die();
  const int result = real(file);
  may_die();
  return result;
}
int rename(const char* from, const char* to) noexcept {
  static const auto real = next<int (*)(const char*, const char*)>("rename");
  may_die();
  if (!immovable.empty() && std::string_view(to).ends_with(immovable)) {
    errno = EIO;
    return -1;
  }
  const int result = real(from, to);
  may_die();
  return result;
}
int unlink(const char* file) noexcept {
  static const auto real = next<int (*)(const char*)>("unlink");
  may_die();
  const int result = real(file);
  may_die();
  return result;
}
}

namespace adjoint {
namespace {

// Two states of a small run, ready to be saved by children that only write.
class Store : public testing::Test {
 protected:
  Store() : step_(built()), run_(step_, make_plan(step_, {.threads = num_threads()})) {
    steps_.begin();
    for (int i = 0; i < 2; ++i) {
      steps_.feed();
      steps_.step();
      copies_.push_back(std::make_unique<StateCopy>(run_));
      copies_.back()->take();
    }
    fs::create_directories(paths_.folder);
  }
  static Scheme built() {
    ModelSizes sizes{.batch = 2, .context = 8};
    sizes.settings = {{"layers", 1}, {"hidden", 16}, {"heads", 2}};
    return build_step(BoundModel(find_model("char"), sizes).forward(), parse_stack(""), {}).scheme;
  }
  void save(int which) const { copies_[which]->save(paths_, which + 1, "print"); }

  // What a reader sees: the step, when both files are whole and of it.
  int64_t seen() const {
    const OpenSave save = open_save(paths_, true);
    EXPECT_TRUE(save.optimizer);
    EXPECT_EQ(step_of(*save.optimizer, paths_.optimizer()), save.step);
    const SavedModel model(paths_);
    model.check_fits(step_);  // with its checksum
    return save.step;
  }
  std::string bytes() const { return read_file(paths_.model()) + read_file(paths_.optimizer()); }
  size_t temporaries() const {
    size_t count = 0;
    for (const auto& entry : fs::directory_iterator(paths_.folder)) {
      count += entry.path().extension() == ".new";
    }
    return count;
  }
  static int status_of(pid_t child) {
    int status = -1;
    ::waitpid(child, &status, 0);
    return status;
  }

  TempFolder folder_;
  SavePaths paths_{folder_ / "run"};
  Scheme step_;
  adjoint::Run run_;
  RandomSteps steps_{run_, 1};
  std::vector<std::unique_ptr<StateCopy>> copies_;
};

TEST_F(Store, AWriterKilledAnywhereLosesNothing) {
  save(0);
  const std::string first = bytes();
  save(1);
  const std::string second = bytes();
  bool survived = false, was_second = false;
  int points = 0;
  for (int at = 1; !survived; ++at) {
    save(0);
    const pid_t child = ::fork();
    if (child == 0) {
      const FolderLock lock(paths_);
      calls_left = at;
      save(1);
      ::_exit(0);
    }
    survived = status_of(child) == 0;
    points += !survived;
    ASSERT_LT(points, 100);
    // A reader sees one of the two, whole, and changes nothing.
    const size_t left = temporaries();
    const int64_t step = seen();
    ASSERT_TRUE(step == 1 || step == 2) << at;
    EXPECT_EQ(temporaries(), left) << "a reader removed something, killed at " << at;
    EXPECT_GE(step == 2, was_second) << "later calls undo nothing, killed at " << at;
    was_second = step == 2;
    // The next writer tidies up, and the save is the same one under its own names.
    { const FolderLock lock(paths_); }
    EXPECT_EQ(temporaries(), 0u) << at;
    EXPECT_EQ(seen(), step) << at;
    EXPECT_TRUE(bytes() == (step == 2 ? second : first)) << at;
  }
  EXPECT_TRUE(was_second);
  EXPECT_GE(points, 18) << "two files, a manifest, a folder: each is synced, three are moved";
}

// And one that dies while it tidies up after one that died.
TEST_F(Store, AKilledRecoveryIsRecoveredFrom) {
  const auto killed_at = [&](int at, bool recovers) {
    const pid_t child = ::fork();
    if (child == 0) {
      calls_left = recovers ? at : -1;
      const FolderLock lock(paths_);
      calls_left = recovers ? calls_left : at;
      if (!recovers) save(1);
      ::_exit(0);
    }
    return status_of(child) != 0;
  };
  for (int at = 1;; at += 2) {
    save(0);
    if (!killed_at(at, false)) break;
    const int64_t step = seen();
    for (int again = 1; again < 50; ++again) {
      const bool killed = killed_at(again, true);
      ASSERT_EQ(seen(), step) << at << ", then " << again;
      if (!killed) break;
    }
    EXPECT_EQ(temporaries(), 0u);
  }
}

TEST_F(Store, ReadersAlwaysSeeACompleteSave) {
  save(0);
  std::mt19937 random(7);
  for (int round = 0; round < 6; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      const FolderLock lock(paths_);
      for (int i = 0;; ++i) save(i % 2);
    }
    const auto end = std::chrono::steady_clock::now() +
                     std::chrono::milliseconds(40 + static_cast<int>(random() % 60));
    int reads = 0;
    while (std::chrono::steady_clock::now() < end) {
      const SavedModel model(paths_);
      model.check_fits(step_);
      ASSERT_TRUE(model.step() == 1 || model.step() == 2);
      ++reads;
    }
    EXPECT_GT(reads, 0);
    ::kill(child, SIGKILL);
    EXPECT_TRUE(WIFSIGNALED(status_of(child))) << "the readers never stop the writer";
    const int64_t step = seen();
    { const FolderLock lock(paths_); }
    EXPECT_EQ(seen(), step);
    EXPECT_EQ(temporaries(), 0u);
  }
}

TEST_F(Store, AFolderOfBeforeIsRead) {
  save(0);
  fs::rename(paths_.model(), paths_.folder / "model.1");
  save(1);
  fs::remove(paths_.manifest());
  EXPECT_EQ(seen(), 2);
  // The folder after a crash between the two renames of a save: the optimizer's file is of step 2,
  // and the model's file of step 2 is still named NAME.new, beside that of step 1.
  const fs::path beside = paths_.model().string() + ".new";
  const std::string whole = bytes();
  fs::rename(paths_.model(), beside);
  fs::rename(paths_.folder / "model.1", paths_.model());
  EXPECT_EQ(seen(), 2);
  EXPECT_TRUE(fs::exists(beside)) << "a reader moves nothing";
  { const FolderLock lock(paths_); }
  EXPECT_FALSE(fs::exists(beside));
  EXPECT_EQ(seen(), 2);
  EXPECT_TRUE(bytes() == whole);
}

// An older version resumes a folder without knowing its manifest; a user may also restore the files
// of an earlier step.
TEST_F(Store, FilesThatTheManifestDoesNotMeanAreReadWhenTheyAgree) {
  save(1);
  const std::string model = read_file(paths_.model()), optimizer = read_file(paths_.optimizer());
  save(0);
  write_file_atomically(paths_.model(), model);
  write_file_atomically(paths_.optimizer(), optimizer);
  EXPECT_EQ(seen(), 2);
  { const FolderLock lock(paths_); }
  EXPECT_EQ(seen(), 2);
  // One of the two alone is no save to go on with, but a model all the same.
  save(0);
  write_file_atomically(paths_.model(), model);
  EXPECT_EQ(SavedModel(paths_).step(), 2);
  std::string why = "no error";
  try {
    load_state(paths_, run_, true, "print");
  } catch (const Error& e) {
    why = e.what();
  }
  EXPECT_NE(why.find("is the state of step 1, but the parameters are of step 2"), std::string::npos)
      << why;
}

TEST_F(Store, AManifestIsNotBelievedUnchecked) {
  save(0);
  write_file_atomically(folder_ / "outside", read_file(paths_.model()));
  const std::string good = read_file(paths_.manifest());
  json outside = json::parse(good);
  outside["files"]["model.safetensors"]["temporary"] = "../outside";
  json other = json::parse(good);
  other["files"]["run.json"] = other["files"]["model.safetensors"];
  json negative = json::parse(good);
  negative["step"] = -1;
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]"), std::string("{}"), outside.dump(),
        other.dump(), negative.dump()}) {
    write_file_atomically(paths_.manifest(), text);
    EXPECT_THROW(open_save(paths_, false), Error) << text;
    EXPECT_THROW(FolderLock lock(paths_), Error) << text;
  }
  write_file_atomically(paths_.manifest(), good);
  EXPECT_EQ(seen(), 1);
}

// A temporary that the manifest names and that is not what it means leaves the good file alone.
TEST_F(Store, OnlyAFileThatOpensIsMoved) {
  save(0);
  const std::string other = read_file(paths_.model());
  save(1);
  const std::string good = bytes();
  const json manifest = json::parse(read_file(paths_.manifest()));
  const std::string name = manifest["files"]["model.safetensors"]["temporary"];
  for (const std::string& text : {std::string("half of a file"), other}) {
    write_file_atomically(paths_.folder / name, text);
    EXPECT_EQ(seen(), 2);
    { const FolderLock lock(paths_); }
    EXPECT_TRUE(bytes() == good) << "a rejected temporary replaced the save";
    EXPECT_EQ(temporaries(), 0u);
  }
}

// From the moment when its manifest is in place a save counts, wherever its files lie; before, the
// one before it does.
TEST_F(Store, AFailedSaveSaysWhichOneStands) {
  struct Case {
    const char* moves_nowhere;
    int64_t stands;
    std::string told;
  };
  for (const Case& c :
       {Case{"save.json", 1, "; the save of step 1 stays"},
        Case{"model.safetensors", 2, "; the save of step 2 stands all the same"},
        Case{"optimizer.safetensors", 2, "; the save of step 2 stands all the same"}}) {
    save(0);
    Saver saver(paths_, run_, "print", 1, kNoCap);
    std::string why = "no error";
    immovable = c.moves_nowhere;
    try {
      saver.save(2);
    } catch (const MachineError& e) {
      why = e.what();
    }
    immovable = {};
    EXPECT_NE(why.find(c.told), std::string::npos) << why;
    EXPECT_EQ(why.find("step"), why.rfind("step")) << "one save is spoken of: " << why;
    EXPECT_EQ(seen(), c.stands) << c.moves_nowhere;
    { const FolderLock lock(paths_); }
    EXPECT_EQ(seen(), c.stands) << c.moves_nowhere;
    EXPECT_EQ(temporaries(), 0u);
    saver.save(2);  // nothing to do where it stands
    EXPECT_EQ(seen(), 2);
  }
}

TEST_F(Store, WhatCannotBeRemovedIsTold) {
  save(0);
  fs::remove(paths_.manifest());
  fs::create_directories(paths_.manifest() / "somebody's");
  try {
    remove_run(paths_);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()),
              paths_.manifest().string() + ": cannot be removed: Directory not empty");
  }
}

TEST_F(Store, ReadersNeedNoPermissionToWrite) {
  save(0);
  fs::permissions(paths_.folder, fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_EQ(seen(), 1);
  if (::geteuid() != 0) {
    EXPECT_THROW(check_writable(paths_), Error);
  }
  fs::permissions(paths_.folder, fs::perms::owner_all);
}

TEST_F(TrainFolder, OverwriteBeginsAnewWhereNoManifestCanBeRead) {
  train(options("whole"));
  train(options("run"));
  const SavePaths paths(out("run"));
  const auto expect_overwritten = [&] {
    EXPECT_NE(error_of(resume("run", {{"steps", 9}})).find("save.json"), std::string::npos);
    EXPECT_NE(error_of(options("run")).find("already holds a run"), std::string::npos);
    write_file_atomically(out("run") / "model.safetensors.7-0123456789abcdef.new", "left");
    EXPECT_EQ(error_of(options("run", {{"overwrite", true}})), "no error");
    EXPECT_FALSE(fs::exists(out("run") / "model.safetensors.7-0123456789abcdef.new"));
    EXPECT_EQ(saved_step(paths), 7);
    EXPECT_TRUE(read_file(paths.model()) == read_file(SavePaths(out("whole")).model()));
  };
  write_file_atomically(paths.manifest(), "{ half of a manifest");
  expect_overwritten();
  fs::remove(paths.manifest());
  fs::create_directory(paths.manifest());
  expect_overwritten();
}

TEST_F(TrainFolder, AKilledRunGoesOnWithTheSameBits) {
  train(options("whole"));
  train(options("killed", {{"stop_after", 3}}));
  for (const char* left : {"model.safetensors.7-0123456789abcdef.new", "run.json.new",
                           "optimizer.safetensors.7-0123456789abcdef.new"}) {
    write_file_atomically(out("killed") / left, "half of a file");
  }
  write_file_atomically(out("killed") / "mine.new", "not Adjoint's");
  EXPECT_EQ(Generator(out("killed"), {.threads = num_threads()})
                .generate("the", {.tokens = 3, .temperature = 0}, nullptr)
                .size(),
            3u);
  EXPECT_TRUE(fs::exists(out("killed") / "run.json.new")) << "readers remove nothing";
  train(resume("killed"));
  EXPECT_FALSE(fs::exists(out("killed") / "run.json.new"));
  EXPECT_FALSE(fs::exists(out("killed") / "model.safetensors.7-0123456789abcdef.new"));
  EXPECT_TRUE(fs::exists(out("killed") / "mine.new"));
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    EXPECT_TRUE(read_file(out("whole") / file) == read_file(out("killed") / file)) << file;
  }
}

}  // namespace
}  // namespace adjoint
