// Ranks as processes, under every MPI that is here.
#include "comm/mpi.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <regex>

#include "base/error_text.h"

namespace adjoint {
namespace {

struct Outcome {
  std::string text;  // of standard output and error
  int status = 0;
  double seconds = 0;
};

class Mpi : public testing::TestWithParam<const char*> {
 protected:
  bool open() const { return std::string(GetParam()) == "openmpi"; }

  Outcome run(const std::string& what) {
    const std::string program = open() ? MPIRUN_OPENMPI : MPIRUN_MPICH;
    // Open MPI asks root twice whether it is sure, and counts cores.
    const std::string prefix = open()
                                   ? "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 " +
                                         program + " --oversubscribe"
                                   : program;
    // What the libraries of MPI leak is theirs.
    const std::string command =
        "ASAN_OPTIONS=detect_leaks=0 " + prefix + " -n 4 " MPI_JOB " " + what + " 2>&1";
    const auto begin = std::chrono::steady_clock::now();
    Outcome outcome;
    FILE* pipe = ::popen(command.c_str(), "r");
    char bytes[4096];
    while (const size_t size = std::fread(bytes, 1, sizeof(bytes), pipe)) {
      outcome.text.append(bytes, size);
    }
    outcome.status = ::pclose(pipe);
    outcome.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return outcome;
  }

  void SetUp() override {
    const std::string program = open() ? MPIRUN_OPENMPI : MPIRUN_MPICH;
    if (program.ends_with("NOTFOUND") || program.empty()) {
      GTEST_SKIP() << "there is no launcher mpirun." << GetParam();
    }
  }
};

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++found;
  return found;
}

TEST_P(Mpi, CollectivesGiveTheBitsOfOnePlainLoop) {
  const Outcome job = run("collectives");
  EXPECT_EQ(job.status, 0) << job.text;
  EXPECT_EQ(count(job.text, ": done\n"), 4) << job.text;
  EXPECT_EQ(count(job.text,
                  "all ranks need the same configuration, and that of rank 2 is not that "
                  "of ranks 0, 1, 3"),
            4)
      << job.text;
}

TEST_P(Mpi, ARankThatDiesEndsTheJobWithOneMessage) {
  for (const auto& [what, rank] : {std::pair{"die", "2"}, std::pair{"first_dies", "0"}}) {
    const Outcome job = run(what);
    EXPECT_NE(job.status, 0);
    EXPECT_LT(job.seconds, 10);
    // MPICH's launcher kills everyone as soon as one has died, often before another can tell why.
    const int told = count(job.text, "adjoint: the job ends: ");
    if (!open() && told == 0) continue;
    EXPECT_EQ(told, 1) << job.text;
    EXPECT_TRUE(has(job.text, join_parts("adjoint: the job ends: rank ", rank,
                                         " died at step 3 in 'block[3].qkv.weight'\n")))
        << job.text;
  }
}

// Holds a job to telling once of a rank that said nothing for too long.
void expect_silence_told(const Outcome& job, const std::string& rank, double seconds) {
  EXPECT_NE(job.status, 0);
  EXPECT_LT(job.seconds, seconds);
  const std::regex said("adjoint: the job ends: a rank was silent for [0-9]+ s: rank " + rank +
                        " at step 3 in 'block\\[3\\].qkv.weight'\n");
  EXPECT_TRUE(std::regex_search(job.text, said)) << job.text;
  EXPECT_EQ(count(job.text, "adjoint: the job ends: "), 1) << job.text;
}

TEST_P(Mpi, ARankThatIsSilentEndsTheJobWithOneMessage) {
  expect_silence_told(run("sleep"), "1", 10);
}

// Rank 0 judges the others, and they judge it.
TEST_P(Mpi, AFirstRankThatIsStoppedEndsTheJobWithOneMessage) {
  expect_silence_told(run("first_stops"), "0", 20);
}

TEST_P(Mpi, ARankThatThrowsEndsTheJobWithOneMessage) {
  const Outcome job = run("throw");
  EXPECT_NE(job.status, 0);
  EXPECT_LT(job.seconds, 10);
  EXPECT_TRUE(has(job.text,
                  "adjoint: the job ends: rank 1 ended at step 3 in "
                  "'block[3].qkv.weight': the disk is full\n"))
      << job.text;
  EXPECT_EQ(count(job.text, "adjoint: the job ends: "), 1) << job.text;
}

TEST_P(Mpi, RanksThatDisagreeAreRefusedWithOneMessage) {
  const Outcome job = run("disagree");
  EXPECT_NE(job.status, 0);
  const char* said =
      "all ranks need the same data, and that of rank 3 is not that of ranks 0, 1, 2";
  EXPECT_EQ(count(job.text, said), 1) << job.text;
  EXPECT_EQ(count(job.text, ": done"), 0) << job.text;
}

TEST_P(Mpi, ARankThatWaitsLeavesItsCoreToOthers) {
  const Outcome job = run("wait");
  EXPECT_EQ(job.status, 0) << job.text;
  const std::regex pattern("rank ([0-9]): used ([0-9.e-]+) s");
  int ranks = 0;
  for (std::sregex_iterator each(job.text.begin(), job.text.end(), pattern), end; each != end;
       ++each, ++ranks) {
    EXPECT_LT(std::stod((*each)[2]), 0.2) << job.text;  // of 2 s
  }
  EXPECT_EQ(ranks, 4) << job.text;
}

INSTANTIATE_TEST_SUITE_P(Launchers, Mpi, testing::Values("openmpi", "mpich"),
                         [](const auto& info) { return std::string(info.param); });

TEST(MpiMissing, IsOneSentenceThatSaysWhatToInstall) {
  const std::string said = error_text([] {
    mpi_world({.ranks = 4, .variable = "OMPI_COMM_WORLD_SIZE", .library = "no_such_mpi"});
  });
  EXPECT_TRUE(has(said, "a launcher started 4 ranks (OMPI_COMM_WORLD_SIZE)")) << said;
  EXPECT_TRUE(has(said, "libadjoint_mpi.so: cannot open shared object file")) << said;
  EXPECT_TRUE(has(said, "openmpi-bin")) << said;
  EXPECT_TRUE(has(said, "--ranks 4 without a launcher")) << said;
}

TEST(MpiLaunch, IsFoundInTheEnvironment) {
  EXPECT_FALSE(find_launch());
  ::setenv("PMI_SIZE", "3", 1);
  const auto found = find_launch();
  ::unsetenv("PMI_SIZE");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->ranks, 3);
  EXPECT_EQ(found->library, "mpich");
}

// A shell of `srun --pty` says that it is one task of one, and is no job of ranks.
TEST(MpiLaunch, OneTaskIsNoLaunch) {
  for (const char* variable : {"PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    ::setenv(variable, "1", 1);
    EXPECT_FALSE(find_launch()) << variable;
    ::unsetenv(variable);
  }
}

}  // namespace
}  // namespace adjoint
