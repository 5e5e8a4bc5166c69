#include "report/memory_panel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace adjoint {

bool has_kind(const Timeline& t, Kind kind) {
  return std::count(t.kinds.begin(), t.kinds.end(), kind) > 0;
}

std::string fill_of(Kind kind) {
  if (kind == Kind::kRecomputation) return std::string(kRecomputedFill);
  return filled(tone_of(kind));
}

namespace {

// Per pixel, the moment that is drawn: of all that share the pixel, the one with the most live
// bytes.
std::vector<int> pixels(const Timeline& t, const Frame& frame) {
  const int width = static_cast<int>(frame.width);
  std::vector<int> shown(width, -1);
  const auto column = [&](double x) {
    return std::clamp(static_cast<int>(x - frame.x + 1e-6), 0, width - 1);
  };
  for (size_t i = 0; i < t.moments.size(); ++i) {
    const Moment& m = t.moments[i];
    const int first = column(frame.begin(m.begins));
    const int last = std::max(first, column(frame.end(m.ends) - 1e-5));
    for (int x = first; x <= last; ++x) {
      const bool more =
          shown[x] < 0 || total(t.live[m.place]) > total(t.live[t.moments[shown[x]].place]);
      if (more) shown[x] = static_cast<int>(i);
    }
  }
  return shown;
}

// Per pixel, the height of all layers up to this one. Rounded, so that relative path steps add up.
std::vector<double> heights(const Timeline& t, const std::vector<int>& shown, int layer,
                            const Frame& frame, const Scale& scale) {
  std::vector<double> found;
  for (const int moment : shown) {
    int64_t sum = 0;  // stays 0 after the end of the step
    for (int k = 0; k <= layer && moment >= 0; ++k) {
      sum += t.live[t.moments[moment].place][static_cast<size_t>(kLayers[k])];
    }
    found.push_back(std::round(10 * frame.height * scale.at(static_cast<double>(sum))) / 10);
  }
  return found;
}

// Calls level(from, to, height) for every run of equal heights.
template <class Level>
void for_levels(const std::vector<double>& heights, const Level& level) {
  for (size_t x = 0; x < heights.size();) {
    const size_t begin = x;
    while (x < heights.size() && heights[x] == heights[begin]) ++x;
    level(begin, x, heights[begin]);
  }
}

// The area between the bottom and the heights, as a closed path.
std::string area(const std::vector<double>& heights, const Frame& frame) {
  std::string out = fmt::format("M{} {}", short_number(frame.x), short_number(frame.bottom()));
  double now = 0;
  for_levels(heights, [&](size_t from, size_t to, double h) {
    if (h != now) out += "v" + short_number(now - h);
    out += fmt::format("h{}", to - from);
    now = h;
  });
  return out + fmt::format("V{}z", short_number(frame.bottom()));
}

// The level pieces of an edge. Narrower ones are spikes, which a line would hide.
std::string edge(const std::vector<double>& heights, const Frame& frame) {
  std::string out;
  for_levels(heights, [&](size_t from, size_t to, double h) {
    if (to - from < 3 || h == 0) return;
    out += fmt::format("M{} {}h{}", short_number(frame.x + static_cast<double>(from)),
                       short_number(frame.bottom() - h), to - from);
  });
  return out;
}

void draw_areas(Svg& svg, const Timeline& t, const Frame& frame, const Scale& scale) {
  const std::vector<int> shown = pixels(t, frame);
  bool top = true;
  for (int layer = kNumCategories - 1; layer >= 0; --layer) {
    const auto c = static_cast<size_t>(kLayers[layer]);
    const bool used = std::any_of(t.live.begin(), t.live.end(),
                                  [&](const CategoryBytes& live) { return live[c] > 0; });
    if (!used) continue;
    const std::vector<double> upper = heights(t, shown, layer, frame, scale);
    svg.path(area(upper, frame), filled(tone_of(kLayers[layer])), name(kLayers[layer]));
    const std::string border = top ? "" : edge(upper, frame);
    if (!border.empty()) svg.path(border, stroked(Tone::kPaper, 0.7));
    top = false;
  }
}

void draw_grid(Svg& svg, const Frame& frame, const Scale& scale, bool labelled) {
  for (const Tick& tick : scale.ticks) {
    const double y = frame.bottom() - frame.height * scale.at(tick.at);
    svg.line(frame.x, y, frame.right(), y, stroked(Tone::kLine, 0.7));
    if (labelled) {
      svg.text(frame.x - 7, y + 4, tick.label, {.size = 11.5, .anchor = Anchor::kEnd});
    }
  }
}

// Where one phase ends and the next begins.
void draw_borders(Svg& svg, const Timeline& t, const Frame& frame) {
  for (size_t i = 1; i < t.phases.size(); ++i) {
    const double x = frame.begin(t.moments[t.phases[i].first].begins);
    svg.line(x, frame.y, x, frame.bottom(), stroked(Tone::kInk, 0.8, "2 3"));
  }
}

// Parts that are like the shown one.
void draw_fold(Svg& svg, const Timeline& t, const Frame& frame) {
  if (frame.fold_width <= 0) return;
  const double x = frame.end(frame.fold_at), y = frame.y;
  svg.rect(x, y, frame.fold_width, frame.height, filled(Tone::kCard),
           fmt::format("parts 2 to {} are like part 1", t.parts));
  for (const double side : {x, x + frame.fold_width}) {
    svg.line(side, y, side, frame.bottom(), stroked(Tone::kSoft, 1, "4 3"));
  }
  const std::vector<std::string> lines = {"parts", fmt::format("2 to {}", t.parts), "are like",
                                          "part 1"};
  svg.text(x + frame.fold_width / 2, y + frame.height / 2 - 22, lines, 16,
           {.size = 11.5, .anchor = Anchor::kMiddle});
}

double x_of_peak(const Timeline& t, const Frame& frame) {
  const Moment& m = t.moments[t.peak_moment()];
  return (frame.begin(m.begins) + frame.end(std::max(m.ends, m.begins))) / 2;
}

// The peak, and the arena if its label differs from the peak's: a line on the edge of the areas
// would tell nothing. The two labels are on different sides.
void draw_peak(Svg& svg, const Timeline& t, const Frame& frame, const Scale& scale) {
  const auto y_of = [&](Bytes bytes) {
    return frame.bottom() - frame.height * scale.at(static_cast<double>(bytes.count));
  };
  const double x = x_of_peak(t, frame), y = y_of(t.peak);
  double label = y - 9;
  if (human(t.arena) != human(t.peak)) {
    const double line = y_of(t.arena);
    label = std::min(label, line - 5);
    svg.line(frame.x, line, frame.right(), line, stroked(Tone::kInk, 1, "5 3"));
    const bool left = x > frame.x + frame.width / 2;
    const std::string arena = "arena " + human(t.arena);
    const double wide = text_width(arena, 11) + 6;
    svg.rect(left ? frame.x + 2 : frame.right() - wide - 2, line - 14, wide, 12,
             filled(Tone::kPaper));
    svg.text(left ? frame.x + 5 : frame.right() - 5, line - 5, arena,
             {.size = 11, .anchor = left ? Anchor::kStart : Anchor::kEnd});
  }
  svg.circle(x, y, 3.6, filled(Tone::kPaper, Tone::kInk, 1.5), t.peak_words);
  const std::string text = "peak " + human(t.peak);
  const double half = text_width(text, 12, true) / 2 + 3;
  const double at = std::clamp(x, frame.x + half, frame.right() - half);
  // Above the peak there is only paper, grid and borders of phases, which would cross the words.
  svg.rect(at - half, label - 10, 2 * half, 12.5, filled(Tone::kPaper));
  svg.text(at, label, text, {.size = 12, .anchor = Anchor::kMiddle, .bold = true}, t.peak_words);
}

}  // namespace

void draw_panel(Svg& svg, const std::string& title, const Timeline& t, const Frame& frame,
                const Scale& scale, const PanelRows& rows, bool labelled) {
  draw_above(svg, title, t, frame, rows);
  draw_grid(svg, frame, scale, labelled);
  if (t.peak.count == 0 || t.moments.empty()) {
    const std::string words = t.moments.empty() ? "there are no calls" : "not used";
    svg.text(frame.x + frame.width / 2, frame.y + frame.height / 2, words,
             {.size = 12, .anchor = Anchor::kMiddle, .tone = Tone::kSoft});
  } else {
    draw_areas(svg, t, frame, scale);
    draw_borders(svg, t, frame);
    draw_fold(svg, t, frame);
    draw_peak(svg, t, frame, scale);
  }
  svg.line(frame.x, frame.bottom(), frame.right(), frame.bottom(), stroked(Tone::kSoft, 1));
  svg.line(frame.x, frame.y, frame.x, frame.bottom(), stroked(Tone::kSoft, 1));
  draw_below(svg, t, frame, rows, labelled);
}

}  // namespace adjoint
