// The matrix of what composes: made by one functor at a time, and as docs/composition.md has it.
#include "laws/composition.h"

#include <gtest/gtest.h>

#include <set>

#include "base/file.h"
#include "laws/planted.h"

namespace adjoint {
namespace {

constexpr std::string_view kBegin = "<!-- matrix -->\n", kEnd = "<!-- /matrix -->";

CompositionOptions options() {
  const std::string folder = SOURCE_DIR "/tests/models/";
  return {.models = {find_model("char"), find_model("llama-tiny"),
                     find_model(folder + "hybrid.scheme"), find_model(folder + "odd.scheme")}};
}

TEST(Composition, EveryFunctorHasAPlaceInTheMatrix) {
  std::set<std::string> seen;
  for (const std::string& item : matrix_items()) {
    if (item[0] == '-') {
      seen.insert(item.substr(1));
      continue;
    }
    const Stack stack = parse_stack(item);
    for (const StackedFunctor& f : stack.functors) {
      if (!f.by_default) seen.insert(f.functor.name);
      seen.insert(f.within.begin(), f.within.end());
    }
  }
  for (const Functor* f : all_functors()) {
    EXPECT_TRUE(seen.count(f->name)) << f->name;
  }
}

TEST(Composition, TheDocumentIsWhatComposes) {
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
