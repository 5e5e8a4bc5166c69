// The whole matrix of what composes is as docs/composition.md has it.
#include <gtest/gtest.h>

#include "base/file.h"
#include "laws/composition.h"

namespace adjoint {
namespace {

constexpr std::string_view kBegin = "<!-- matrix -->\n", kEnd = "<!-- /matrix -->";

CompositionOptions options() {
  const std::string folder = SOURCE_DIR "/tests/models/";
  return {.models = {find_model("char"), find_model("llama-tiny"),
                     find_model(folder + "hybrid.scheme"), find_model(folder + "odd.scheme")}};
}

TEST(CompositionMatrix, TheDocumentIsWhatComposes) {
  const Composition composition = compose_all(options());
  EXPECT_TRUE(composition.ok());
  const std::string markdown = to_markdown(composition);
  const std::string document = read_file(SOURCE_DIR "/docs/composition.md");
  const size_t begin = document.find(kBegin), end = document.find(kEnd);
  ASSERT_TRUE(begin != std::string::npos && end != std::string::npos) << "the markers are there";
  const size_t from = begin + kBegin.size();
  EXPECT_EQ(document.substr(from, end - from), markdown)
      << "print it anew: scripts/write_matrix.py build/release/adjoint";
}

}  // namespace
}  // namespace adjoint
