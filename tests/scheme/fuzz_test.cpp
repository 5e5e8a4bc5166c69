// Whatever the text, parsing gives a value or an Error; a value prints and parses back.
#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "scheme/document.h"
#include "scheme/scheme.h"

namespace adjoint {
namespace {

constexpr std::string_view kDocument = R"(axes a=1 b=2*a
numbers eps=1e-5
preset p-1: a=3
f x[batch, a], y f32:
  z, w = g^a(x, k=1 when eps), "t"
model x:
  y = f(x, -x) + (x - 1)/2
)";

constexpr std::string_view kScheme = R"(scheme s:
  parameter %1 w.weight: f32[v=65~128, h*2=4] init=normal(0.02) frozen place=data/sharded/1
  input %0 x: i32[] precision="nf4/64" recomputed host stage=2 parts
  %2 y:g: f32[v=65] gradient, %3 z: f32[] = op(%0, %1) {a=1, b=-2.5, c="t", d=[1]} @y update epoch=1
  carry %1 -> %1
  return %2, %3
)";

class Mutator {
 public:
  explicit Mutator(uint32_t seed) : random_(seed) {}
  size_t below(size_t n) { return static_cast<size_t>(random_() % n); }

  std::string garbage() {
    std::string text(below(60), ' ');
    for (char& c : text)
      c = static_cast<char>(below(4) ? kLikely[below(kLikely.size())] : below(256));
    return text;
  }

  std::string changed(std::string_view from) {
    std::string text(from);
    for (size_t i = 0, n = 1 + below(5); i < n && !text.empty(); ++i) {
      const size_t at = below(text.size()), length = 1 + below(8);
      switch (below(5)) {
        case 0:
          text[at] = static_cast<char>(below(256));
          break;
        case 1:
          text[at] = kLikely[below(kLikely.size())];
          break;
        case 2:
          text.erase(at, length);
          break;
        case 3:
          text.insert(at, text.substr(below(text.size()), length));
          break;
        default:
          text.resize(at);
      }
    }
    return text;
  }

 private:
  static constexpr std::string_view kLikely = "%()[]{}=,.:^*/+-#\"~@_ \n\t0189aexyz";
  std::mt19937 random_;
};

template <class Parse>
int fuzz(uint32_t seed, std::string_view text, const Parse& parse) {
  Mutator mutator(seed);
  int parsed = 0;
  for (int round = 0; round < 20000; ++round) {
    const std::string input = round % 4 ? mutator.changed(text) : mutator.garbage();
    try {
      const auto value = parse(input);
      EXPECT_EQ(parse(print(value)), value) << input << "\nprinted as\n" << print(value);
      ++parsed;
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).rfind("fuzz:", 0), 0u) << error.what();
    }
  }
  return parsed;
}

TEST(Fuzz, Documents) {
  const auto parse = [](std::string_view text) { return parse_document(text, "fuzz"); };
  EXPECT_GT(fuzz(1, kDocument, parse), 100);
}

TEST(Fuzz, Schemes) {
  const auto parse = [](std::string_view text) { return parse_scheme(text, "fuzz"); };
  EXPECT_GT(fuzz(2, kScheme, parse), 100);
}

}  // namespace
}  // namespace adjoint
