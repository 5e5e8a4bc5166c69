// One binary for every machine: it starts where no CUDA is installed, and opens nothing of CUDA
// until a GPU is asked for.
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/temp_folder.h"
#include "cli/outcome.h"

namespace adjoint {
namespace {

void says_nothing_of_cuda(const std::string& text) {
  for (const char* library : {"libcuda", "libcublas", "libnvrtc", "libcudnn"}) {
    EXPECT_EQ(text.find(library), std::string::npos) << library << ": " << text;
  }
}

TEST(Start, NeedsNoLibraryOfCuda) {
  const Outcome o = run("", "readelf --dynamic");
  if (o.code != 0) GTEST_SKIP() << "no readelf: " << o.text;
  EXPECT_NE(o.text.find("NEEDED"), std::string::npos) << o.text;
  says_nothing_of_cuda(o.text);
}

TEST(Start, OpensNoLibraryOfCudaUnasked) {
  const std::string shows = "OMP_WAIT_POLICY=passive LD_DEBUG=files";
  const std::string small = " --model char --batch 2 --context 8 --set layers=1 hidden=16 heads=2";
  const TempFolder folder;
  write_file_atomically(folder / "text.txt", std::string(300, 'a') + std::string(300, 'b'));
  const std::string train = "train --data " + (folder / "text.txt").string() +
                            " --steps 1 --eval-batches 1 --out " + (folder / "run").string();
  for (const std::string& command :
       {std::string("--version"), "plan" + small, "plan --device h200" + small, train + small}) {
    const Outcome o = run(command, shows);
    EXPECT_EQ(o.code, 0) << o.text;
    if (o.text.find("libc.so") == std::string::npos) GTEST_SKIP() << "this loader shows nothing";
    says_nothing_of_cuda(o.text);
  }
}

}  // namespace
}  // namespace adjoint
