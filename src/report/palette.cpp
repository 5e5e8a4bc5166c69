#include "report/palette.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "report/svg.h"

namespace adjoint {

namespace {

constexpr std::array<Shades, kNumTones> kShades = {{
    {"paper", "#ffffff", "#14171b"},       {"ink", "#1b1f24", "#e8eaed"},
    {"soft", "#58616b", "#a4adb7"},        {"line", "#d5dade", "#3a4149"},
    {"card", "#f4f6f8", "#1e2329"},        {"idle", "#c6ccd2", "#4b535c"},
    {"mark", "#2f4f9e", "#9db4ff"},        {"parameters", "#004b76", "#1868a0"},
    {"optimizer", "#3c9bd0", "#5fb4e6"},   {"other", "#d2cdd0", "#54545a"},
    {"gradients", "#bb4a05", "#ea8042"},   {"activations", "#f5c24c", "#ecc04a"},
    {"workspace", "#2a1a35", "#f4ecfa"},   {"forward", "#bfe6bd", "#2f6330"},
    {"backward", "#66bd70", "#6fb57e"},    {"weights", "#a8993a", "#706a1e"},
    {"update", "#2b7040", "#a5edb4"},      {"copies", "#e2aadf", "#d3b0cf"},
    {"collectives", "#78304f", "#bd45b8"},
}};

constexpr std::string_view kBlack = "#1b1f24", kWhite = "#ffffff";

double luminance(std::string_view colour) {
  const auto part = [&](size_t at) {
    const double c = std::stoi(std::string(colour.substr(at, 2)), nullptr, 16) / 255.0;
    return c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4);
  };
  return 0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5);
}

// Whichever of black and white is the easier to read on it.
std::string_view ink_over(std::string_view area) {
  const double here = luminance(area) + 0.05, black = luminance(kBlack) + 0.05;
  return here / black > 1.05 / here ? kBlack : kWhite;
}

template <class Each>
void for_tones(const Each& each) {
  for (const Shades& shades : kShades) each(shades);
}

}  // namespace

Shades shades_of(Tone tone) { return kShades[static_cast<size_t>(tone)]; }

Tone tone_of(Category category) {
  switch (category) {
    case Category::kParameters:
      return Tone::kParameters;
    case Category::kOptimizer:
      return Tone::kOptimizer;
    case Category::kOther:
      return Tone::kOther;
    case Category::kGradients:
      return Tone::kGradients;
    case Category::kActivations:
      return Tone::kActivations;
    case Category::kWorkspace:
      return Tone::kWorkspace;
  }
  return Tone::kOther;
}

Tone tone_of(Kind kind) {
  switch (kind) {
    case Kind::kForward:
      return Tone::kForward;
    case Kind::kBackward:
    case Kind::kRecomputation:
      return Tone::kBackward;
    case Kind::kUpdate:
      return Tone::kUpdate;
  }
  return Tone::kForward;
}

std::string filled(Tone tone) {
  const Shades s = shades_of(tone);
  return fmt::format("fill=\"{}\" class=\"f-{}\"", s.light, s.name);
}

std::string stroked(Tone tone, double width, std::string_view dashes) {
  const Shades s = shades_of(tone);
  std::string out = fmt::format("fill=\"none\" stroke=\"{}\" class=\"s-{}\" stroke-width=\"{}\"",
                                s.light, s.name, short_number(width));
  if (!dashes.empty()) out += fmt::format(" stroke-dasharray=\"{}\"", dashes);
  return out;
}

std::string filled(Tone tone, Tone edge, double width) {
  const Shades s = shades_of(tone), e = shades_of(edge);
  return fmt::format("fill=\"{}\" stroke=\"{}\" class=\"f-{} s-{}\" stroke-width=\"{}\"", s.light,
                     e.light, s.name, e.name, short_number(width));
}

std::string fill_of_text_over(Tone area) {
  const Shades s = shades_of(area);
  return fmt::format("fill=\"{}\" class=\"on-{}\"", ink_over(s.light), s.name);
}

std::string hatches() {
  const auto pattern = [](std::string_view id, double size, double width, Tone under, Tone lines) {
    const std::string n = short_number(size);
    return fmt::format(
        "<pattern id=\"{0}\" width=\"{1}\" height=\"{1}\" patternUnits=\"userSpaceOnUse\" "
        "patternTransform=\"rotate(45)\"><rect width=\"{1}\" height=\"{1}\" {2}/><rect "
        "width=\"{3}\" height=\"{1}\" {4}/></pattern>",
        id, n, filled(under), short_number(width), filled(lines));
  };
  return "<defs>" + pattern("again", 5, 2.6, Tone::kPaper, tone_of(Kind::kRecomputation)) +
         pattern("idle", 5, 1.2, Tone::kCard, Tone::kIdle) + "</defs>\n";
}

std::string picture_style() {
  std::string dark;
  for_tones([&](const Shades& s) {
    dark += fmt::format(".f-{0}{{fill:{1}}}.s-{0}{{stroke:{1}}}", s.name, s.dark);
    if (ink_over(s.light) != ink_over(s.dark)) {
      dark += fmt::format(".on-{}{{fill:{}}}", s.name, ink_over(s.dark));
    }
  });
  return "<style>@media screen and (prefers-color-scheme: dark){" + dark + "}</style>\n";
}

std::string page_style() {
  std::string light, dark;
  for_tones([&](const Shades& s) {
    light += fmt::format(" --{}: {};", s.name, s.light);
    dark += fmt::format(" --{}: {};", s.name, s.dark);
  });
  return fmt::format(
      ":root {{ color-scheme: light dark;{} }}\n"
      "@media screen and (prefers-color-scheme: dark) {{ :root {{{} }} }}\n",
      light, dark);
}

}  // namespace adjoint
