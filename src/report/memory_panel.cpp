#include "report/memory_panel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace adjoint {

// Blue and orange for those who cannot tell red from green, and every layer of another lightness
// (L* 31, 60, 91, 46, 81, 13) for grey print.
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

namespace {

constexpr double kBand = 17, kStrip = 6, kBlockRow = 16, kPartRow = 16, kAxisRow = 36;
constexpr std::string_view kGrid = "stroke=\"#d8d8d8\" stroke-width=\"0.7\"";
constexpr std::string_view kFrame = "stroke=\"#555\" stroke-width=\"1\"";
constexpr std::string_view kGrey = "#555";

// Which moment stands for each pixel: of all that share it the one with the most live bytes.
std::vector<int> pixels(const Timeline& t, int width) {
  std::vector<int> shown(width, -1);
  const double length = t.length();
  const auto column = [&](double x) {
    const double at = length > 0 ? x / length * width : 0;
    return std::clamp(static_cast<int>(at + 1e-6), 0, width - 1);
  };
  for (size_t i = 0; i < t.moments.size(); ++i) {
    const Moment& m = t.moments[i];
    const int last = std::max(column(m.begins), column(m.ends - 1e-9 * length));
    for (int x = column(m.begins); x <= last; ++x) {
      const bool more =
          shown[x] < 0 || total(t.live[m.place]) > total(t.live[t.moments[shown[x]].place]);
      if (more) shown[x] = static_cast<int>(i);
    }
  }
  if (length <= 0) std::fill(shown.begin(), shown.end(), t.peak_moment());
  return shown;
}

// The upper edge of all layers up to this one, closed along the bottom.
std::string area(const Timeline& t, const std::vector<int>& shown, int layer, const Frame& frame,
                 const Scale& scale) {
  const auto height = [&](int moment) {
    const CategoryBytes& live =
        moment < 0 ? t.live[0] : t.live[t.moments[moment].place];  // no calls: what there is
    int64_t sum = 0;
    for (int k = 0; k <= layer; ++k) sum += live[static_cast<size_t>(kLayers[k])];
    // Rounded here, so that relative steps do not drift.
    return std::round(10 * frame.height * scale.at(static_cast<double>(sum))) / 10;
  };
  std::string out = fmt::format("M{} {}", short_number(frame.x), short_number(frame.bottom()));
  double now = 0;
  int run = 0;
  const auto flush = [&] {
    if (run > 0) out += fmt::format("h{}", run);
    run = 0;
  };
  for (const int moment : shown) {
    const double h = height(moment);
    if (h != now) {
      flush();
      out += "v" + short_number(now - h);
      now = h;
    }
    ++run;
  }
  flush();
  return out + fmt::format("V{}z", short_number(frame.bottom()));
}

double x_of(const Timeline& t, const Frame& frame, double when) {
  return t.length() > 0 ? frame.x + frame.width * when / t.length() : frame.x;
}

double x_of_moment(const Timeline& t, const Frame& frame, int moment) {
  return x_of(t, frame, t.moments[moment].begins);
}

double end_of(const Timeline& t, const Frame& frame, const Stretch& s) {
  return x_of(t, frame, t.moments[s.last].ends);
}

void draw_areas(Svg& svg, const Timeline& t, const Frame& frame, const Scale& scale) {
  const std::vector<int> shown = pixels(t, static_cast<int>(frame.width));
  for (int layer = kNumCategories - 1; layer >= 0; --layer) {
    const auto c = static_cast<size_t>(kLayers[layer]);
    const bool used = std::any_of(t.live.begin(), t.live.end(),
                                  [&](const CategoryBytes& live) { return live[c] > 0; });
    if (!used) continue;
    const std::string edge = area(t, shown, layer, frame, scale);
    svg.path(
        edge,
        fmt::format("fill=\"{}\" stroke=\"#fff\" stroke-width=\"0.35\"", colour_of(kLayers[layer])),
        name(kLayers[layer]));
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

void draw_arena(Svg& svg, const Timeline& t, const Frame& frame, const Scale& scale) {
  if (t.arena <= t.peak) return;
  const double y = frame.bottom() - frame.height * scale.at(static_cast<double>(t.arena.count));
  svg.line(frame.x, y, frame.right(), y,
           "stroke=\"#222\" stroke-width=\"1\" stroke-dasharray=\"5 3\"");
  // On the side where the peak is not.
  const int peak = t.peak_moment();
  const bool left = peak >= 0 && x_of_moment(t, frame, peak) > frame.x + frame.width / 2;
  svg.text(left ? frame.x + 5 : frame.right() - 5, y - 5, "arena " + human(t.arena),
           {.size = 11, .anchor = left ? Anchor::kStart : Anchor::kEnd});
}

void draw_peak(Svg& svg, const Timeline& t, const Frame& frame, const Scale& scale) {
  const int peak = t.peak_moment();
  double x = frame.x + frame.width / 2;
  if (peak >= 0) {
    x = x_of(t, frame, (t.moments[peak].begins + t.moments[peak].ends) / 2);
  }
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

std::string_view band_colour(std::string_view phase) {
  if (phase == "forward") return "#dfe5ec";
  if (phase == "backward") return "#b8c4d1";
  if (phase == "update") return "#8b9db0";
  return "#f3f3f3";
}

void draw_phases(Svg& svg, const Timeline& t, const Frame& frame, double y) {
  for (const Stretch& phase : t.phases) {
    const double x = x_of_moment(t, frame, phase.first), end = end_of(t, frame, phase);
    svg.rect(
        x, y, end - x, kBand,
        fmt::format("fill=\"{}\" stroke=\"#fff\" stroke-width=\"0.6\"", band_colour(phase.name)),
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

// What really runs at each pixel, where that is not the band's phase throughout.
void draw_kinds(Svg& svg, const Timeline& t, const Frame& frame, double y) {
  const int width = static_cast<int>(frame.width);
  std::vector<std::array<double, 4>> share(width, std::array<double, 4>{});
  for (const Moment& m : t.moments) {
    const double begin = x_of(t, frame, m.begins) - frame.x, end = x_of(t, frame, m.ends) - frame.x;
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
    const std::string_view fill =
        kind == Kind::kRecomputation ? "url(#again)" : band_colour(name(kind));
    svg.rect(frame.x + begin, y, x - begin, kStrip, fmt::format("fill=\"{}\"", fill), name(kind));
  }
}

// "block" when all boxes are called that, so that indices say enough.
std::string common_box(const std::vector<Stretch>& blocks) {
  const auto box = [](const std::string& name) { return name.substr(0, name.find('[')); };
  for (const Stretch& b : blocks) {
    if (box(b.name) != box(blocks[0].name)) return "";
  }
  return blocks.empty() ? "" : box(blocks[0].name);
}

void draw_blocks(Svg& svg, const Timeline& t, const Frame& frame, double y) {
  const std::string box = common_box(t.blocks);
  double free = frame.x;  // where the next label may begin
  for (const Stretch& block : t.blocks) {
    const double x = x_of_moment(t, frame, block.first), end = end_of(t, frame, block);
    for (const double edge : {x, end}) {
      svg.line(edge, frame.bottom(), edge, frame.bottom() + 4,
               "stroke=\"#555\" stroke-width=\"0.6\"");
    }
    std::string label = block.name;
    if (!box.empty()) label = label.substr(box.size() + 1, label.size() - box.size() - 2);
    const double width = text_width(label, 9.5);
    const double from = (x + end - width) / 2;
    if (from < free || from + width > frame.right() + 8) continue;
    svg.text((x + end) / 2, y + 11, label, {.size = 9.5, .anchor = Anchor::kMiddle, .fill = kGrey});
    free = from + width + 4;
  }
}

// Parts of the batch, where there are several.
void draw_sections(Svg& svg, const Timeline& t, const Frame& frame, double y) {
  for (const Stretch& section : t.sections) {
    const double x = x_of_moment(t, frame, section.first), end = end_of(t, frame, section);
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
      t.in_seconds ? seconds_scale(0, t.length(), wanted) : count_scale(0, t.length(), wanted);
  for (const Tick& tick : scale.ticks) {
    const double x = frame.x + frame.width * scale.at(tick.at);
    svg.line(x, y, x, y + 4, kFrame);
    svg.text(x, y + 16, tick.label, {.size = 10.5, .anchor = Anchor::kMiddle});
  }
  std::string what = t.in_seconds ? "time" + (t.clock.empty() ? "" : ", " + t.clock)
                                  : "calls of the step in order";
  if (t.body_once) what += fmt::format("; forward and backward are one of {} parts", t.parts);
  svg.text(frame.x + frame.width / 2, y + 30, fitted(what, 10.5, frame.width),
           {.size = 10.5, .anchor = Anchor::kMiddle, .fill = kGrey});
}

}  // namespace

double PanelRows::height() const {
  return 6 + (blocks ? kBlockRow : 0) + kBand + (kinds ? kStrip : 0) + (sections ? kPartRow : 0) +
         kAxisRow;
}

PanelRows rows_of(const Timeline& t) {
  return {.sections = t.sections.size() > 1,
          .kinds = has_kind_elsewhere(t),
          .blocks = !t.blocks.empty()};
}

bool has_recomputation(const Timeline& t) {
  return std::count(t.kinds.begin(), t.kinds.end(), Kind::kRecomputation) > 0;
}

void draw_panel(Svg& svg, const std::string& title, const Timeline& t, const Frame& frame,
                const Scale& scale, const PanelRows& rows, bool labelled) {
  svg.text(frame.x, frame.y - kPanelTop + 14, fitted(title, 12.5, frame.width),
           {.size = 12.5, .bold = true}, title);
  draw_grid(svg, frame, scale, labelled);
  draw_areas(svg, t, frame, scale);
  draw_arena(svg, t, frame, scale);
  draw_peak(svg, t, frame, scale);
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
  if (rows.sections) {
    draw_sections(svg, t, frame, y + 3);
    row("", kPartRow);
  }
  draw_time_axis(svg, t, frame, y + 2);
}

}  // namespace adjoint
