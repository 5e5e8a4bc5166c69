// The rows around the areas of a memory chart. Above: title, peak, parts of the batch and phases,
// each with its name, so that colour is never the only sign. Below: what runs when.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "report/memory_panel.h"

namespace adjoint {

namespace {

constexpr double kTitleLine = 17, kPeakLine = 15, kPartRow = 24, kCallout = 16, kBand = 18;
constexpr double kBlockRow = 16, kStrip = 10, kBarRow = 13, kRowGap = 3, kTicks = 22,
                 kAxisLine = 14;
constexpr double kTitleSize = 12.5, kPeakSize = 11, kBandSize = 11.5, kAxisSize = 11;

std::string peak_in_words(const Timeline& t) {
  if (t.peak.count == 0 || t.moments.empty()) return "";
  // Which call it is among all says little here; the hint of the peak has it.
  return fmt::format("peak of {} {}", human(t.peak),
                     t.peak_words.substr(0, t.peak_words.rfind(", call ")));
}

std::string axis_in_words(const Timeline& t) {
  if (!t.in_seconds) return "calls of the step in order";
  return fmt::format("time{}; the step takes {}", t.clock.empty() ? "" : ", " + t.clock,
                     human_seconds(t.step()));
}

struct Extent {
  double from = 0, to = 0;
  double middle() const { return (from + to) / 2; }
  double width() const { return to - from; }
};

Extent extent(const Timeline& t, const Frame& frame, const Stretch& s) {
  const double from = frame.begin(t.moments[s.first].begins);
  return {from, std::max(from, frame.end(t.moments[s.last].ends))};
}

bool fits(const std::string& label, double size, const Extent& room) {
  return text_width(label, size) + 2 <= room.width();
}

Kind kind_of_phase(const Stretch& phase) {
  return phase.name == "forward"    ? Kind::kForward
         : phase.name == "backward" ? Kind::kBackward
                                    : Kind::kUpdate;
}

// A phase whose name has no room in any of its bands is named above the widest of them.
std::vector<const Stretch*> called_out(const Timeline& t, const Frame& frame) {
  std::map<std::string, const Stretch*> widest;
  for (const Stretch& phase : t.phases) {
    const Stretch*& known = widest[phase.name];
    if (!known || extent(t, frame, phase).width() > extent(t, frame, *known).width()) {
      known = &phase;
    }
  }
  std::vector<const Stretch*> out;
  for (const Stretch& phase : t.phases) {
    if (widest[phase.name] != &phase || fits(phase.name, kBandSize, extent(t, frame, phase))) {
      continue;
    }
    out.push_back(&phase);
  }
  return out;
}

void draw_phases(Svg& svg, const Timeline& t, const Frame& frame, double y) {
  for (const Stretch& phase : t.phases) {
    const Extent at = extent(t, frame, phase);
    const Kind kind = kind_of_phase(phase);
    svg.rect(at.from, y, std::max(at.width(), 0.5), kBand, fill_of(kind), phase.name);
    if (!fits(phase.name, kBandSize, at)) continue;
    svg.text(at.middle(), y + 13, phase.name,
             {.size = kBandSize, .anchor = Anchor::kMiddle, .tone = tone_of(kind), .over = true});
  }
}

// Names of narrow phases, moved apart, with a line to their bands.
void draw_callouts(Svg& svg, const Timeline& t, const Frame& frame, double y) {
  const std::vector<const Stretch*> phases = called_out(t, frame);
  std::vector<double> centres;
  double from = frame.x - 8, limit = frame.right() + 8;
  const auto half = [&](size_t i) { return text_width(phases[i]->name, kBandSize) / 2; };
  for (size_t i = 0; i < phases.size(); ++i) {
    centres.push_back(std::max(extent(t, frame, *phases[i]).middle(), from + half(i)));
    from = centres[i] + half(i) + 8;
  }
  for (size_t i = phases.size(); i-- > 0;) {
    centres[i] = std::min(centres[i], limit - half(i));
    limit = centres[i] - half(i) - 8;
  }
  for (size_t i = 0; i < phases.size(); ++i) {
    const double x = extent(t, frame, *phases[i]).middle();
    svg.text(centres[i], y + 10, phases[i]->name, {.size = kBandSize, .anchor = Anchor::kMiddle});
    svg.line(std::clamp(x, frame.x, frame.right()), y + 12, x, y + kCallout,
             stroked(Tone::kInk, 1));
  }
}

// Brackets with the numbers of the parts; of prologue and epilogue only where there is room.
void draw_sections(Svg& svg, const Timeline& t, const Frame& frame, double y) {
  for (const Stretch& section : t.sections) {
    const Extent at = extent(t, frame, section);
    const double line = y + kPartRow - 4;
    const size_t of = section.name.find(" of ");
    for (const std::string& label : {section.name, section.name.substr(0, of)}) {
      if (!fits(label, kBandSize, at)) continue;
      svg.path(fmt::format("M{0} {2}V{1}H{3}V{2}", short_number(at.from + 1),
                           short_number(line - 3), short_number(line + 2), short_number(at.to - 1)),
               stroked(Tone::kSoft, 1));
      svg.text(at.middle(), line - 7, label, {.size = kBandSize, .anchor = Anchor::kMiddle},
               section.name);
      break;
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

// The kind of the call at each pixel; white where the arithmetic waits.
void draw_calls(Svg& svg, const Timeline& t, const Frame& frame, double y) {
  const int width = static_cast<int>(frame.width);
  constexpr int kNone = 4;
  std::vector<std::array<double, kNone + 1>> share(width, std::array<double, kNone + 1>{});
  for (auto& pixel : share) pixel[kNone] = 0.05;
  for (const Moment& m : t.moments) {
    if (m.beside) continue;
    const double begin = frame.begin(m.from) - frame.x, end = frame.end(m.to) - frame.x;
    for (int x = static_cast<int>(begin); x < std::min<double>(end, width); ++x) {
      share[x][static_cast<size_t>(t.kinds[m.place])] +=
          std::max(0.0, std::min<double>(end, x + 1) - std::max<double>(begin, x));
    }
  }
  const auto kind_at = [&](int x) {
    return std::max_element(share[x].begin(), share[x].end()) - share[x].begin();
  };
  for (int x = 0; x < width;) {
    const int begin = x;
    const auto kind = kind_at(x);
    while (x < width && kind_at(x) == kind) ++x;
    if (kind == kNone) continue;
    svg.rect(frame.x + begin, y, x - begin, kStrip, fill_of(static_cast<Kind>(kind)),
             name(static_cast<Kind>(kind)));
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

void draw_blocks(Svg& svg, const Timeline& t, const Frame& frame, double y) {
  const std::string box = common_box(t.blocks);
  for (const Stretch& block : t.blocks) {
    const Extent at = extent(t, frame, block);
    for (const double x : {at.from, at.to}) {
      svg.line(x, frame.bottom(), x, frame.bottom() + 5, stroked(Tone::kSoft, 0.6));
    }
  }
  double free = frame.x - 6;
  for (const Stretch& block : t.blocks) {
    std::string label = block.name;
    if (!box.empty()) label = label.substr(box.size() + 1, label.size() - box.size() - 2);
    const double at = extent(t, frame, block).middle(), half = text_width(label, 10) / 2;
    if (at - half < free || at + half > frame.right() + 6) continue;
    svg.text(at, y + 11, label, {.size = 10, .anchor = Anchor::kMiddle, .tone = Tone::kSoft});
    free = at + half + 4;
  }
}

// Bars of the calls that `wanted` names, at the time when they run. What is nearer than a pixel is
// one bar.
template <class Wanted>
void draw_bars(Svg& svg, const Timeline& t, const Frame& frame, double y, Tone tone,
               const std::string& hint, const Wanted& wanted) {
  svg.line(frame.x, y + kBarRow / 2, frame.end(t.length()), y + kBarRow / 2,
           stroked(Tone::kLine, 0.7));
  std::vector<Extent> bars;
  for (const Moment& m : t.moments) {
    if (!wanted(m) || m.to <= m.from) continue;
    const Extent own{frame.begin(m.from), frame.end(m.to)};
    if (!bars.empty() && own.from <= bars.back().to + 0.5 && own.from >= bars.back().from) {
      bars.back().to = std::max(bars.back().to, own.to);
    } else {
      bars.push_back(own);
    }
  }
  for (const Extent& bar : bars) {
    svg.rect(bar.from, y + 2, std::max(bar.width(), 0.7), kBarRow - 4, filled(tone), hint);
  }
}

// Round ticks on both sides of a fold. Labels are of the step's time, with the parts that are left
// out.
void draw_time_axis(Svg& svg, const Timeline& t, const Frame& frame, double y) {
  const double per_pixel = frame.span / (frame.width - frame.fold_width);
  double free = -1e300;
  const auto ticks = [&](double from, double to, double earlier) {
    const int wanted = static_cast<int>((to - from) / per_pixel / 90);
    if (wanted < 1 && from > 0) return;
    const Scale scale = t.in_seconds ? seconds_scale(from, to, std::max(wanted, 1))
                                     : count_scale(from, to, std::max(wanted, 1));
    for (const Tick& tick : scale.ticks) {
      const double x = frame.begin(tick.at - earlier);
      const double half = text_width(tick.label, kAxisSize) / 2;
      if (x - half < free || x > frame.right() + 1) continue;
      svg.line(x, y, x, y + 4, stroked(Tone::kSoft, 1));
      svg.text(x, y + 16, tick.label, {.size = kAxisSize, .anchor = Anchor::kMiddle});
      free = x + half + 8;
    }
  };
  if (frame.fold_width > 0) {
    ticks(0, frame.fold_at * (1 - 1e-9), 0);
    free = std::max(free, frame.begin(frame.fold_at) - 8);
    const double before = free;
    ticks(frame.fold_at + t.left_out, t.step(), t.left_out);
    if (free == before && t.in_seconds) {  // no room for a round one: the end itself
      const double x = frame.end(t.length());
      svg.line(x, y, x, y + 4, stroked(Tone::kSoft, 1));
      svg.text(x, y + 16, human_seconds(t.step()), {.size = kAxisSize, .anchor = Anchor::kMiddle});
    }
  } else {
    ticks(0, frame.span, 0);
  }
  svg.text(frame.x + frame.width / 2, y + kTicks + 10,
           wrapped(axis_in_words(t), kAxisSize, frame.width), kAxisLine,
           {.size = kAxisSize, .anchor = Anchor::kMiddle, .tone = Tone::kSoft});
}

}  // namespace

void PanelRows::unite(const PanelRows& o) {
  title_lines = std::max(title_lines, o.title_lines);
  peak_lines = std::max(peak_lines, o.peak_lines);
  sections |= o.sections, callouts |= o.callouts, calls |= o.calls, blocks |= o.blocks;
  from_host |= o.from_host, to_host |= o.to_host;
  spoken = std::max(spoken, o.spoken);
  axis_lines = std::max(axis_lines, o.axis_lines);
}

double PanelRows::above() const {
  return kTitleLine * static_cast<double>(title_lines) +
         kPeakLine * static_cast<double>(peak_lines) + (sections ? kPartRow : 4) +
         (callouts ? kCallout : 0) + kBand + 2;
}

double PanelRows::below() const {
  return 6 + (blocks ? kBlockRow : 0) + (calls ? kStrip + kRowGap : 0) +
         kBarRow * (static_cast<double>(spoken) + (from_host ? 1 : 0) + (to_host ? 1 : 0)) +
         kTicks + kAxisLine * static_cast<double>(axis_lines);
}

PanelRows rows_of(const std::string& title, const Timeline& t, const Frame& frame) {
  const auto copies = [&](CopyWay way) {
    return t.tier == Tier::kDevice && std::count(t.copies.begin(), t.copies.end(), way) > 0;
  };
  return {.title_lines = wrapped(title, kTitleSize, frame.width, true).size(),
          .peak_lines = wrapped(peak_in_words(t), kPeakSize, frame.width).size(),
          .sections = t.parts > 1,
          .callouts = !called_out(t, frame).empty(),
          .calls = has_kind_elsewhere(t),
          .blocks = !t.blocks.empty(),
          .from_host = copies(CopyWay::kFromHost),
          .to_host = copies(CopyWay::kToHost),
          .spoken = t.tier == Tier::kDevice ? t.spoken.size() : 0,
          .axis_lines = wrapped(axis_in_words(t), kAxisSize, frame.width).size()};
}

void draw_above(Svg& svg, const std::string& title, const Timeline& t, const Frame& frame,
                const PanelRows& rows) {
  double y = frame.y - rows.above();
  svg.text(frame.x, y + 12, wrapped(title, kTitleSize, frame.width, true), kTitleLine,
           {.size = kTitleSize, .bold = true}, title);
  y += kTitleLine * static_cast<double>(rows.title_lines);
  svg.text(frame.x, y + 11, wrapped(peak_in_words(t), kPeakSize, frame.width), kPeakLine,
           {.size = kPeakSize, .tone = Tone::kSoft});
  if (rows.sections && t.parts > 1) {
    draw_sections(svg, t, frame, frame.y - kBand - 2 - (rows.callouts ? kCallout : 0) - kPartRow);
  }
  if (rows.callouts) draw_callouts(svg, t, frame, frame.y - kBand - 2 - kCallout);
  draw_phases(svg, t, frame, frame.y - kBand - 2);
}

void draw_below(Svg& svg, const Timeline& t, const Frame& frame, const PanelRows& rows,
                bool labelled) {
  double y = frame.bottom() + 6;
  const auto row = [&](std::string_view name, double height) {
    if (labelled) {
      svg.text(frame.x - 7, y + height / 2 + 4, name,
               {.size = 10.5, .anchor = Anchor::kEnd, .tone = Tone::kSoft});
    }
    y += height;
  };
  if (rows.blocks) {
    draw_blocks(svg, t, frame, y);
    const std::string box = common_box(t.blocks);
    row(box.empty() || box.size() > 9 ? "block" : box, kBlockRow);
  }
  if (rows.calls) {
    draw_calls(svg, t, frame, y);
    row("calls", kStrip);
    y += kRowGap;
  }
  for (const auto& [used, way, words] :
       {std::tuple{rows.from_host, CopyWay::kFromHost, "from host"},
        std::tuple{rows.to_host, CopyWay::kToHost, "to host"}}) {
    if (!used) continue;
    draw_bars(svg, t, frame, y, Tone::kCopies, fmt::format("copies {}", words),
              [&, way = way](const Moment& m) { return t.copies[m.place] == way; });
    row(words, kBarRow);
  }
  for (size_t axis = 0; axis < rows.spoken; ++axis) {
    if (axis >= t.spoken.size()) {
      y += kBarRow;
      continue;
    }
    draw_bars(svg, t, frame, y, Tone::kCollectives, "collectives over " + t.spoken[axis],
              [&](const Moment& m) { return t.speaks_along[m.place] == static_cast<int>(axis); });
    row("over " + t.spoken[axis], kBarRow);
  }
  draw_time_axis(svg, t, frame, y + 2);
}

}  // namespace adjoint
