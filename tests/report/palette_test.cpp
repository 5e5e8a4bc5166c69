// Colours can be told apart by everybody: also by readers without one of the three kinds of cones,
// as Machado, Oliveira and Fernandes (2009) simulate them, on light and on dark paper.
#include "report/palette.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/error_text.h"

namespace adjoint {
namespace {

using Vector = std::array<double, 3>;
using Matrix = std::array<Vector, 3>;

constexpr Matrix kEyes[] = {
    {{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}},
    {{{0.152286, 1.052583, -0.204868},
      {0.114503, 0.786281, 0.099216},
      {-0.003882, -0.048116, 1.051998}}},
    {{{0.367322, 0.860646, -0.227968},
      {0.280085, 0.672501, 0.047413},
      {-0.011820, 0.042940, 0.968881}}},
    {{{1.255528, -0.076749, -0.178779},
      {-0.078411, 0.930809, 0.147602},
      {0.004733, 0.691367, 0.303900}}},
};

Vector times(const Matrix& m, const Vector& v) {
  Vector out = {};
  for (int i = 0; i < 3; ++i) {
    for (int k = 0; k < 3; ++k) out[i] += m[i][k] * v[k];
  }
  return out;
}

Vector linear(std::string_view colour) {
  Vector out = {};
  for (size_t i = 0; i < 3; ++i) {
    const double c = std::stoi(std::string(colour.substr(1 + 2 * i, 2)), nullptr, 16) / 255.0;
    out[i] = c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4);
  }
  return out;
}

Vector lab(Vector rgb) {
  for (double& c : rgb) c = std::clamp(c, 0.0, 1.0);
  constexpr Matrix kXyz = {
      {{0.4124, 0.3576, 0.1805}, {0.2126, 0.7152, 0.0722}, {0.0193, 0.1192, 0.9505}}};
  const Vector xyz = times(kXyz, rgb);
  const auto f = [](double t) { return t > 0.008856 ? std::cbrt(t) : 7.787 * t + 16.0 / 116; };
  const double x = f(xyz[0] / 0.95047), y = f(xyz[1]), z = f(xyz[2] / 1.08883);
  return {116 * y - 16, 500 * (x - y), 200 * (y - z)};
}

double distance(std::string_view a, std::string_view b) {
  double least = 1e300;
  for (const Matrix& eye : kEyes) {
    const Vector p = lab(times(eye, linear(a))), q = lab(times(eye, linear(b)));
    least = std::min(least, std::hypot(p[0] - q[0], p[1] - q[1], p[2] - q[2]));
  }
  return least;
}

double contrast(std::string_view a, std::string_view b) {
  const auto luminance = [](std::string_view colour) {
    const Vector c = linear(colour);
    return 0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2] + 0.05;
  };
  const double p = luminance(a), q = luminance(b);
  return std::max(p, q) / std::min(p, q);
}

std::vector<Shades> meanings() {
  std::vector<Shades> all = {shades_of(Tone::kPaper)};
  for (int i = static_cast<int>(kFirstMeaning); i < kNumTones; ++i) {
    all.push_back(shades_of(static_cast<Tone>(i)));
  }
  return all;
}

TEST(Palette, TonesCanBeToldApartByEveryEye) {
  // A difference of 2 is just seen side by side; 10 is seen from afar.
  EXPECT_LT(distance("#66bd70", "#3c9bd0"), distance("#000000", "#ffffff"));
  const std::vector<Shades> all = meanings();
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      EXPECT_GT(distance(all[i].light, all[k].light), 12) << all[i].name << " " << all[k].name;
      EXPECT_GT(distance(all[i].dark, all[k].dark), 12) << all[i].name << " " << all[k].name;
    }
  }
}

TEST(Palette, WordsCanBeReadOnPaperAndOnAreas) {
  const Shades paper = shades_of(Tone::kPaper), card = shades_of(Tone::kCard);
  for (const Tone tone : {Tone::kInk, Tone::kSoft}) {
    for (const Shades& under : {paper, card}) {
      EXPECT_GT(contrast(shades_of(tone).light, under.light), 4.5) << shades_of(tone).name;
      EXPECT_GT(contrast(shades_of(tone).dark, under.dark), 4.5) << shades_of(tone).name;
    }
  }
  for (const Tone area : {Tone::kForward, Tone::kBackward, Tone::kWeights, Tone::kUpdate}) {
    const std::string style = fill_of_text_over(area);
    EXPECT_GT(contrast(style.substr(6, 7), shades_of(area).light), 4.5) << style;
    const std::string rule = std::string(".on-") + std::string(shades_of(area).name) + "{fill:";
    const std::string sheet = picture_style();
    const size_t at = sheet.find(rule);
    const std::string dark =
        at == std::string::npos ? style.substr(6, 7) : sheet.substr(at + rule.size(), 7);
    EXPECT_GT(contrast(dark, shades_of(area).dark), 4.5) << style;
  }
}

TEST(Palette, EveryMeaningHasItsOwnToneAndEveryToneADarkShade) {
  std::set<std::string_view> light, dark, names;
  for (const Shades& s : meanings())
    light.insert(s.light), dark.insert(s.dark), names.insert(s.name);
  EXPECT_EQ(light.size(), meanings().size());
  EXPECT_EQ(dark.size(), meanings().size());
  EXPECT_EQ(names.size(), meanings().size());
  for (int i = 0; i < kNumTones; ++i) {
    const Shades s = shades_of(static_cast<Tone>(i));
    const std::string name(s.name), shade(s.dark);
    EXPECT_TRUE(has(picture_style(), ".f-" + name + "{fill:" + shade + "}")) << name;
    EXPECT_TRUE(has(page_style(), "--" + name + ": " + shade)) << name;
    EXPECT_TRUE(has(filled(static_cast<Tone>(i)), "class=\"f-" + name + "\"")) << name;
  }
}

}  // namespace
}  // namespace adjoint
