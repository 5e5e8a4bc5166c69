// `mpirun -n N adjoint train`: ranks that are processes train what ranks train that are threads,
// and whatever is wrong is one sentence.
#include "cli/mpi_folder.h"

namespace adjoint {
namespace {

namespace fs = std::filesystem;

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++found;
  return found;
}

class MpiRanks : public MpiFolder {
 protected:
  // Once, by one rank, with exit code 1, and nothing is written.
  void expect_refused(const Outcome& job, const std::string& sentence) const {
    EXPECT_EQ(job.code, 1) << job.text;
    EXPECT_EQ(count(job.text, "adjoint: " + sentence + "\n"), 1) << job.text;
    EXPECT_EQ(count(job.text, "adjoint: "), 1) << job.text;
    EXPECT_FALSE(fs::exists(folder_ / "run"));
  }
};

TEST_F(MpiRanks, TrainWhatThreadsTrainAndSpeakOnce) {
  const std::string stack = "data_parallel | zero(3)";
  const Outcome threads = run(train("threads", stack) + "--threads 1 --ranks 3");
  ASSERT_EQ(threads.code, 0) << threads.text;
  const Outcome job = run(train("run", stack) + "--threads 1", mpirun("-n 3"));
  ASSERT_EQ(job.code, 0) << job.text;
  EXPECT_EQ(count(job.text, "saved step 4 of 4"), 1) << job.text;
  expect_same_save("run", "threads");
}

// Stages that are processes, with every kind of slot; one process in as many parts trains the same.
TEST_F(MpiRanks, StagesTrainWhatOneProcessTrains) {
  const Outcome one = run(train("one", "accumulate(4, tied=apart)") + "--threads 1");
  ASSERT_EQ(one.code, 0) << one.text;
  for (const char* schedule : {"1f1b", "zero_bubble"}) {
    const std::string stack = std::string("pipeline(2, parts=4, schedule=") + schedule + ")";
    const Outcome job = run(train("run", stack) + "--threads 1 --overwrite", mpirun("-n 2"));
    ASSERT_EQ(job.code, 0) << job.text;
    expect_same_save("run", "one");
  }
}

// Stages that are processes are measured by one clock, and one of them tells.
TEST_F(MpiRanks, StagesAreProfiled) {
  const std::string step =
      " --model char --batch 4 --context 16 --set layers=2 hidden=32 heads=2 --threads 1 --stack "
      "'pipeline(2, parts=4)' ";
  Outcome job = run("bench ranks --rounds 1 --steps 1 --json" + step, mpirun("-n 2"));
  ASSERT_EQ(job.code, 0) << job.text;
  EXPECT_EQ(count(job.text, "\"measured_bubble\""), 1) << job.text;
  job = run("profile --steps 1 --out " + (folder_ / "run").string() + step, mpirun("-n 2"));
  ASSERT_EQ(job.code, 0) << job.text;
  EXPECT_EQ(count(job.text, "2 ranks (stage=2) ran as processes"), 1) << job.text;
  EXPECT_TRUE(fs::exists(folder_ / "run" / "schedule.svg"));
  fs::remove_all(folder_ / "run");
  expect_refused(
      run("profile --ranks 2 --out " + (folder_ / "run").string() + step, mpirun("-n 3")),
      "--ranks: the launcher started 3 ranks, found 2");
}

// A save knows nothing of meshes: one process evaluates, samples, merges and converts it.
TEST_F(MpiRanks, SaveWhatOneProcessReads) {
  const Outcome job =
      run(train("run", "lora(rank=2) | data_parallel | zero(3)") + "--threads 1 --ranks 4");
  ASSERT_EQ(job.code, 0) << job.text;
  const auto at = [&](const char* name) { return " " + (folder_ / name).string() + " "; };
  for (const std::string& command :
       {"eval --model" + at("run"), "generate --tokens 4 --prompt the --model" + at("run"),
        "merge --run" + at("run") + "--out" + at("merged"),
        "convert" + at("merged") + at("converted")}) {
    const Outcome read = run(command);
    EXPECT_EQ(read.code, 0) << command << "\n" << read.text;
  }
}

TEST_F(MpiRanks, AreRefusedWithOneSentence) {
  expect_refused(run(train("run", "data_parallel(2)"), mpirun("-n 3")),
                 "the mesh of the stack (data=2) has 2 ranks, and this run has 3; run it on 2 "
                 "(--ranks 2, or mpirun -n 2), or say data_parallel(3)");
  expect_refused(run(train("run", "data_parallel") + "--ranks 4", mpirun("-n 2")),
                 "--ranks: the launcher started 2 ranks, found 4");
  expect_refused(run(train("run", "data_parallel", "nowhere.txt"), mpirun("-n 2")),
                 "nowhere.txt: there is no such file");
  // Where an option is another on one rank, or a folder, or a text.
  for (const auto& [rank, last] : {std::pair{"a", "b"}, std::pair{"b", "c"}}) {
    fs::create_directories(folder_ / rank);
    write_file_atomically(folder_ / rank / "own.txt", std::string(2000, 'a') + last);
  }
  const auto apart = [&](const std::string& first, const std::string& second) {
    return run(first + "--threads 1 : -n 1 -wdir " + (folder_ / "b").string() +
                   " " ADJOINT_BINARY " " + second + "--threads 1",
               mpirun("-n 1 -wdir " + (folder_ / "a").string()));
  };
  const std::string usual = train("run", "data_parallel"), local = train("./run", "data_parallel"),
                    own = train("run", "data_parallel", "own.txt");
  expect_refused(apart(usual + "--lr 0.1 ", usual + "--lr 0.2 "),
                 "all ranks need the same options, and that of rank 1 is not that of rank 0");
  expect_refused(apart(local, local),
                 "./run: rank 1 does not see this folder of rank 0, or cannot write to it; say an "
                 "--out on a disk that all ranks share");
  EXPECT_FALSE(fs::exists(folder_ / "a/run"));
  expect_refused(apart(own, own),
                 "all ranks need the same data, and that of rank 1 is not that of rank 0");
}

TEST_F(MpiRanks, OfOtherInstructionsAreRefused) {
  const Outcome job = run(
      train("run", "data_parallel") + " : -n 1 " ADJOINT_BINARY " " + train("run", "data_parallel"),
      mpirun("-n 1 -x ONEDNN_MAX_CPU_ISA=SSE41"));
  expect_refused(job,
                 "all ranks need the same instructions of the processor (ONEDNN_MAX_CPU_ISA limits "
                 "them), and that of rank 1 is not that of rank 0");
}

TEST_F(MpiRanks, AreNotStartedWhereMpiCannotBeOpened) {
  const Outcome alone = run(train("run", "data_parallel"), "PMI_SIZE=2");
  EXPECT_EQ(alone.code, 1) << alone.text;
  EXPECT_FALSE(fs::exists(folder_ / "run"));
}

TEST_F(MpiRanks, LaunchSaysWhatKeptMpirunFromStarting) {
  const Outcome none =
      run("launch -n 2 --mpirun /nowhere/mpirun -- " + train("run", "data_parallel"));
  EXPECT_EQ(none.code, 1) << none.text;
  EXPECT_EQ(count(none.text, "before any rank began"), 1) << none.text;
  const Outcome wrong = run("launch -n 2 -- train --no-such-flag");
  EXPECT_EQ(wrong.code, 1) << wrong.text;
}

}  // namespace
}  // namespace adjoint
