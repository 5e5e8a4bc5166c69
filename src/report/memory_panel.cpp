#include "report/memory_panel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace adjoint {

// Blue and orange, for readers who cannot tell red from green; each layer has its own lightness (L*
// 31, 60, 91, 46, 81, 13), for print in grey.
std::string_view colour_of(Category category) {
  switch (category) {
    case Category::kParameters:
      return "#004b76";
    case Category::kOptimizer:
      return "#3c9bd0";
    case Category::kOther:
      return "#e4e4e4";
    case Category::kGradients:
      return "#bb4a05";
    case Category::kActivations:
      return "#f5c24c";
    case Category::kWorkspace:
      return "#2a1a35";
  }
  return "#000";
}

std::string_view fill_of(Kind kind) {
  switch (kind) {
    case Kind::kForward:
      return "#dfe5ec";
    case Kind::kBackward:
      return "#b8c4d1";
    case Kind::kRecomputation:
      return "url(#again)";
    case Kind::kUpdate:
      return "#8b9db0";
  }
  return "#fff";
}

namespace {

constexpr double kBand = 17, kStrip = 6, kBlockRow = 16, kPartRow = 16, kAxisRow = 36,
                 kSpokenRow = 11;
constexpr std::string_view kGrid = "stroke=\"#d8d8d8\" stroke-width=\"0.7\"";
constexpr std::string_view kFrame = "stroke=\"#555\" stroke-width=\"1\"";
constexpr std::string_view kGrey = "#555";

// Per pixel, the moment that is drawn: of all that share the pixel, the one with the most live
// bytes.
std::vector<int> pixels(const Timeline& t, const Frame& frame) {
  const int width = static_cast<int>(frame.width);
  std::vector<int> shown(width, -1);
  const auto column = [&](double x) {
    const double at = x / frame.span * width;
    return std::clamp(static_cast<int>(at + 1e-6), 0, width - 1);
  };
  for (size_t i = 0; i < t.moments.size(); ++i) {
    const Moment& m = t.moments[i];
    const int last = std::max(column(m.begins), column(m.ends - 1e-9 * frame.span));
    for (int x = column(m.begins); x <= last; ++x) {
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

double x_of(const Frame& frame, double when) { return frame.x + frame.width * when / frame.span; }

double begin_of(const Timeline& t, const Frame& frame, const Stretch& s) {
  return x_of(frame, t.moments[s.first].begins);
}

double end_of(const Timeline& t, const Frame& frame, const Stretch& s) {
  return x_of(frame, t.moments[s.last].ends);
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
    svg.path(area(upper, frame), fmt::format("fill=\"{}\"", colour_of(kLayers[layer])),
             name(kLayers[layer]));
    const std::string border = top ? "" : edge(upper, frame);
    if (!border.empty()) {
      svg.path(border, "fill=\"none\" stroke=\"#fff\" stroke-width=\"0.7\"");
    }
    top = false;
  }
}

void draw_grid(Svg& svg, const Frame& frame, const Scale& scale, bool labelled) {
  for (const Tick& tick : scale.ticks) {
    const double y = frame.bottom() - frame.height * scale.at(tick.at);
    svg.line(frame.x, y, frame.right(), y, kGrid);
    if (labelled) {
      svg.text(frame.x - 7, y + 4, tick.label, {.size = 11.5, .anchor = Anchor::kEnd});
    }
  }
}

double x_of_peak(const Timeline& t, const Frame& frame) {
  const Moment& m = t.moments[t.peak_moment()];
  return x_of(frame, (m.begins + m.ends) / 2);
}

// Draws the arena only if its label differs from the peak's; a line on the edge of the areas would
// tell nothing.
void draw_arena(Svg& svg, const Timeline& t, const Frame& frame, const Scale& scale) {
  if (human(t.arena) == human(t.peak)) return;
  const double y = frame.bottom() - frame.height * scale.at(static_cast<double>(t.arena.count));
  svg.line(frame.x, y, frame.right(), y,
           "stroke=\"#222\" stroke-width=\"1\" stroke-dasharray=\"5 3\"");
  // The label is on the side without the peak.
  const bool left = x_of_peak(t, frame) > frame.x + frame.width / 2;
  svg.text(left ? frame.x + 5 : frame.right() - 5, y - 5, "arena " + human(t.arena),
           {.size = 11, .anchor = left ? Anchor::kStart : Anchor::kEnd});
}

void draw_peak(Svg& svg, const Timeline& t, const Frame& frame, const Scale& scale) {
  const double x = x_of_peak(t, frame);
  const double y = frame.bottom() - frame.height * scale.at(static_cast<double>(t.peak.count));
  const double label = frame.y - 22;
  svg.line(x, label + 18, x, y, "stroke=\"#222\" stroke-width=\"1\"");
  svg.circle(x, y, 3.2, "fill=\"#fff\" stroke=\"#222\" stroke-width=\"1.4\"");
  const auto placed = [&](double at, std::string_view words, double size, bool bold) {
    const std::string text = fitted(words, size, frame.width);
    const double half = text_width(text, size) / 2;
    const bool start = x - half<frame.x, end = x + half> frame.right();
    const TextStyle style{.size = size,
                          .anchor = start ? Anchor::kStart
                                    : end ? Anchor::kEnd
                                          : Anchor::kMiddle,
                          .bold = bold};
    svg.text(start ? frame.x : end ? frame.right() : x, at, text, style, words);
  };
  placed(label, "peak " + human(t.peak), 12.5, true);
  placed(label + 14, t.peak_words, 10.5, false);
}

Kind phase_kind(const Stretch& phase) {
  return phase.name == "forward"    ? Kind::kForward
         : phase.name == "backward" ? Kind::kBackward
                                    : Kind::kUpdate;
}

void draw_phases(Svg& svg, const Timeline& t, const Frame& frame, double y) {
  for (const Stretch& phase : t.phases) {
    const double x = begin_of(t, frame, phase), end = end_of(t, frame, phase);
    svg.rect(
        x, y, end - x, kBand,
        fmt::format("fill=\"{}\" stroke=\"#fff\" stroke-width=\"0.6\"", fill_of(phase_kind(phase))),
        phase.name);
    if (text_width(phase.name, 11) + 4 <= end - x) {
      svg.text((x + end) / 2, y + 12.5, phase.name, {.size = 11, .anchor = Anchor::kMiddle});
    }
  }
}

bool has_kind_elsewhere(const Timeline& t) {
  for (const Stretch& phase : t.phases) {
    for (int i = phase.first; i <= phase.last; ++i) {
      if (name(t.kinds[t.moments[i].place]) != phase.name) return true;
    }
  }
  return false;
}

// The kind of the call at each pixel, drawn if some call is not of the band's phase.
void draw_kinds(Svg& svg, const Timeline& t, const Frame& frame, double y) {
  const int width = static_cast<int>(frame.width * std::min(1.0, t.length() / frame.span));
  std::vector<std::array<double, 4>> share(width, std::array<double, 4>{});
  for (const Moment& m : t.moments) {
    const double begin = x_of(frame, m.begins) - frame.x, end = x_of(frame, m.ends) - frame.x;
    for (int x = static_cast<int>(begin); x < std::min<double>(end, width); ++x) {
      share[x][static_cast<size_t>(t.kinds[m.place])] +=
          std::min<double>(end, x + 1) - std::max<double>(begin, x);
    }
  }
  const auto kind_at = [&](int x) {
    return static_cast<Kind>(std::max_element(share[x].begin(), share[x].end()) - share[x].begin());
  };
  for (int x = 0; x < width;) {
    const int begin = x;
    const Kind kind = kind_at(x);
    while (x < width && kind_at(x) == kind) ++x;
    svg.rect(frame.x + begin, y, x - begin, kStrip, fmt::format("fill=\"{}\"", fill_of(kind)),
             name(kind));
  }
}

// "block" if all boxes have that name, so that labels need only indices.
std::string common_box(const std::vector<Stretch>& blocks) {
  const auto box = [](const std::string& name) { return name.substr(0, name.find('[')); };
  for (const Stretch& b : blocks) {
    if (box(b.name) != box(blocks[0].name)) return "";
  }
  return blocks.empty() ? "" : box(blocks[0].name);
}

// Labels of one phase's blocks: all, or every second, third, ... so that none overlap.
void label_blocks(Svg& svg, const Timeline& t, const Frame& frame, double y, size_t begin,
                  size_t end, const std::string& box) {
  std::vector<std::pair<double, std::string>> labels;  // middle, text
  double widest = 0, closest = frame.width;
  for (size_t i = begin; i < end; ++i) {
    const Stretch& block = t.blocks[i];
    std::string label = block.name;
    if (!box.empty()) label = label.substr(box.size() + 1, label.size() - box.size() - 2);
    widest = std::max(widest, text_width(label, 9.5));
    labels.emplace_back((begin_of(t, frame, block) + end_of(t, frame, block)) / 2, label);
    if (labels.size() > 1) {
      closest = std::min(closest, labels.back().first - labels[labels.size() - 2].first);
    }
  }
  const size_t every = static_cast<size_t>(std::ceil((widest + 4) / std::max(closest, 0.1)));
  for (size_t i = 0; i < labels.size(); i += every) {
    svg.text(labels[i].first, y + 11, labels[i].second,
             {.size = 9.5, .anchor = Anchor::kMiddle, .fill = kGrey});
  }
}

void draw_blocks(Svg& svg, const Timeline& t, const Frame& frame, double y) {
  const std::string box = common_box(t.blocks);
  for (const Stretch& block : t.blocks) {
    for (const double x : {begin_of(t, frame, block), end_of(t, frame, block)}) {
      svg.line(x, frame.bottom(), x, frame.bottom() + 5, "stroke=\"#555\" stroke-width=\"0.6\"");
    }
  }
  for (size_t i = 0; i + 1 < t.blocks.size(); ++i) {
    const double x = end_of(t, frame, t.blocks[i]), end = begin_of(t, frame, t.blocks[i + 1]);
    if (end - x < text_width("outside", 9.5) + 16) continue;
    svg.text((x + end) / 2, y + 11, "outside",
             {.size = 9.5, .anchor = Anchor::kMiddle, .fill = kGrey});
  }
  size_t begin = 0;
  for (const Stretch& phase : t.phases) {
    size_t end = begin;
    while (end < t.blocks.size() && t.blocks[end].last <= phase.last) ++end;
    if (end > begin) label_blocks(svg, t, frame, y, begin, end, box);
    begin = end;
  }
}

// When calls speak to other ranks along one axis of the mesh. What is nearer than a pixel is one
// bar.
void draw_spoken(Svg& svg, const Timeline& t, const Frame& frame, double y, size_t axis) {
  svg.line(frame.x, y + kSpokenRow / 2, x_of(frame, t.length()), y + kSpokenRow / 2, kGrid);
  double begin = 0, end = -1;
  const auto bar = [&] {
    if (end < begin) return;
    svg.rect(begin, y + 2, std::max(end - begin, 0.7), kSpokenRow - 4,
             fmt::format("fill=\"{}\"", kSpokenColour), "collectives over " + t.spoken[axis]);
  };
  for (const Moment& m : t.moments) {
    if (t.speaks_along[m.place] != static_cast<int>(axis)) continue;
    const double from = x_of(frame, m.begins), to = x_of(frame, m.ends);
    if (end < begin || from > end + 1) {
      bar();
      begin = from;
    }
    end = std::max(to, begin);
  }
  bar();
}

// Parts of the batch, where there are several.
void draw_sections(Svg& svg, const Timeline& t, const Frame& frame, double y) {
  for (const Stretch& section : t.sections) {
    const double x = begin_of(t, frame, section), end = end_of(t, frame, section);
    svg.line(x + 0.5, y + kPartRow - 3, end - 0.5, y + kPartRow - 3,
             "stroke=\"#555\" stroke-width=\"1\"");
    if (text_width(section.name, 10) + 2 > end - x) continue;
    svg.text((x + end) / 2, y + 8, section.name,
             {.size = 10, .anchor = Anchor::kMiddle, .fill = kGrey});
  }
}

void draw_time_axis(Svg& svg, const Timeline& t, const Frame& frame, double y) {
  const int wanted = static_cast<int>(frame.width / 90);
  const Scale scale =
      t.in_seconds ? seconds_scale(0, frame.span, wanted) : count_scale(0, frame.span, wanted);
  for (const Tick& tick : scale.ticks) {
    const double x = frame.x + frame.width * scale.at(tick.at);
    svg.line(x, y, x, y + 4, kFrame);
    svg.text(x, y + 16, tick.label, {.size = 10.5, .anchor = Anchor::kMiddle});
  }
  std::string what = t.in_seconds ? "time" + (t.clock.empty() ? "" : ", " + t.clock)
                                  : "calls of the step in order";
  if (t.body_once) what += fmt::format("; {} more parts like this one are left out", t.parts - 1);
  svg.text(frame.x + frame.width / 2, y + 30, fitted(what, 10.5, frame.width),
           {.size = 10.5, .anchor = Anchor::kMiddle, .fill = kGrey});
}

}  // namespace

double PanelRows::height() const {
  return 6 + (blocks ? kBlockRow : 0) + kBand + (kinds ? kStrip : 0) + (sections ? kPartRow : 0) +
         static_cast<double>(spoken) * kSpokenRow + kAxisRow;
}

PanelRows rows_of(const Timeline& t) {
  return {.sections = t.sections.size() > 1,
          .kinds = has_kind_elsewhere(t),
          .blocks = !t.blocks.empty(),
          .spoken = t.spoken.size()};
}

bool has_kind(const Timeline& t, Kind kind) {
  return std::count(t.kinds.begin(), t.kinds.end(), kind) > 0;
}

void draw_panel(Svg& svg, const std::string& title, const Timeline& t, const Frame& frame,
                const Scale& scale, const PanelRows& rows, bool labelled) {
  svg.text(frame.x, frame.y - kPanelTop + 14, fitted(title, 12.5, frame.width),
           {.size = 12.5, .bold = true}, title);
  draw_grid(svg, frame, scale, labelled);
  if (t.peak.count == 0 || t.moments.empty()) {
    const std::string words = t.moments.empty() ? "there are no calls" : "not used";
    svg.text(frame.x + frame.width / 2, frame.y + frame.height / 2, words,
             {.size = 12, .anchor = Anchor::kMiddle, .fill = kGrey});
  } else {
    draw_areas(svg, t, frame, scale);
    draw_arena(svg, t, frame, scale);
    draw_peak(svg, t, frame, scale);
  }
  svg.line(frame.x, frame.bottom(), frame.right(), frame.bottom(), kFrame);
  svg.line(frame.x, frame.y, frame.x, frame.bottom(), kFrame);
  double y = frame.bottom() + 6;
  const auto row = [&](std::string_view name, double height) {
    if (labelled) {
      svg.text(frame.x - 7, y + height / 2 + 4, name,
               {.size = 10, .anchor = Anchor::kEnd, .fill = kGrey});
    }
    y += height;
  };
  if (rows.blocks) {
    draw_blocks(svg, t, frame, y);
    const std::string box = common_box(t.blocks);
    row(box.empty() ? "block" : box, kBlockRow);
  }
  draw_phases(svg, t, frame, y);
  row("phase", kBand);
  if (rows.kinds) {
    draw_kinds(svg, t, frame, y);
    y += kStrip;
  }
  for (size_t axis = 0; axis < rows.spoken; ++axis) {
    if (axis < t.spoken.size()) {
      draw_spoken(svg, t, frame, y, axis);
      row("over " + t.spoken[axis], kSpokenRow);
    } else {
      y += kSpokenRow;
    }
  }
  if (rows.sections) {
    draw_sections(svg, t, frame, y + 3);
    row("", kPartRow);
  }
  draw_time_axis(svg, t, frame, y + 2);
}

}  // namespace adjoint
