// A folder with a text to train on, and commands that train on it under mpirun.
#pragma once
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/temp_folder.h"
#include "cli/outcome.h"

namespace adjoint {

class MpiFolder : public testing::Test {
 protected:
  void SetUp() override {
    if (std::string(MPIRUN_OPENMPI).ends_with("NOTFOUND")) GTEST_SKIP() << "there is no Open MPI";
    std::string text;
    for (int i = 0; i < 400; ++i)
      text += "the cat sat on mat " + std::to_string(i * 37 % 101) + "\n";
    write_file_atomically(folder_ / "text.txt", text);
  }
  static std::string mpirun(const std::string& arguments) {
    return "ASAN_OPTIONS=detect_leaks=0 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
           "OMP_WAIT_POLICY=passive " MPIRUN_OPENMPI " --oversubscribe " +
           arguments;
  }
  // A relative path is another file for ranks that are in other folders.
  std::string train(const std::string& out, const std::string& stack,
                    const std::string& data = "") const {
    return "train --model char --data " + (data.empty() ? (folder_ / "text.txt").string() : data) +
           " --out " + (out[0] == '.' ? out : (folder_ / out).string()) + " --stack '" + stack +
           "' --steps 4 --batch 4 --context 16 --eval-batches 1 --save-every 2 --set layers=2 "
           "hidden=32 heads=2 dropout=0.1 ";
  }
  void expect_same_save(const std::string& a, const std::string& b) const {
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      EXPECT_EQ(read_file(folder_ / a / file) == read_file(folder_ / b / file), true) << file;
    }
  }

  TempFolder folder_;
};

}  // namespace adjoint
