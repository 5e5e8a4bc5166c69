// The colours of all pictures and of the profile's page. A colour has one meaning everywhere: blues
// are bytes that stay for the whole step, warm colours are bytes that come and go, greens are
// arithmetic, and purples move bytes. Each tone has a shade for light paper and one for dark paper.
// tests/report/palette_test.cpp holds them apart for readers who see two of three primary colours.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "report/timeline.h"

namespace adjoint {

enum class Tone : uint8_t {
  // Paper and what is written on it.
  kPaper,
  kInk,
  kSoft,  // words beside the matter, frames
  kLine,  // rules and grids
  kCard,  // a field that stands out a little: a fold, a card
  kIdle,  // lines of the hatching of idle time
  kMark,  // points of a plot that has one meaning only
  // Bytes by category.
  kParameters,
  kOptimizer,
  kOther,
  kGradients,
  kActivations,
  kWorkspace,
  // Arithmetic by kind; recomputation is backward's colour, hatched.
  kForward,
  kBackward,
  kWeights,  // the gradients of weights, where a schedule has them apart
  kUpdate,
  // What moves bytes.
  kCopies,
  kCollectives,
};
constexpr int kNumTones = 19;
constexpr Tone kFirstMeaning = Tone::kParameters;  // this tone and those after it have a meaning

struct Shades {
  std::string_view name, light, dark;
};
Shades shades_of(Tone tone);

Tone tone_of(Category category);
Tone tone_of(Kind kind);  // recomputation: that of its hatching

// Attributes of an SVG element. Each has the light shade as an attribute, which every viewer
// understands, and a class by which the picture's style sheet replaces it on dark paper.
std::string filled(Tone tone);
std::string stroked(Tone tone, double width, std::string_view dashes = "");
std::string filled(Tone tone, Tone edge, double width);
std::string fill_of_text_over(Tone area);  // black or white, by the area's lightness
// What `kHatches` defines.
constexpr std::string_view kRecomputedFill = "fill=\"url(#again)\"",
                           kIdleFill = "fill=\"url(#idle)\"";
std::string hatches();  // <defs> of both

// The style sheet of a picture, for dark paper.
std::string picture_style();
// Custom properties of a page, --paper to --collectives, for light and dark.
std::string page_style();

}  // namespace adjoint
