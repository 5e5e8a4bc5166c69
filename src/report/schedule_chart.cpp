#include "report/schedule_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "base/bytes.h"
#include "report/scale.h"
#include "report/svg.h"

namespace adjoint {

namespace {

constexpr double kLeft = 64, kWidth = 900, kRight = 150, kTop = 86, kAxis = 34, kPanelHead = 40;
constexpr double kLane = 20, kMemory = 22, kGap = 9;
constexpr double kLeastSlot =
    1.5;  // pixels; where slots are narrower, shares of the time are drawn
constexpr int kColumn = 6, kColumns = static_cast<int>(kWidth) / kColumn;  // of shares
constexpr std::string_view kHatched = "fill=\"url(#bubble)\"";
constexpr std::string_view kBubble =
    "<defs><pattern id=\"bubble\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" "
    "patternTransform=\"rotate(45)\"><rect width=\"5\" height=\"5\" fill=\"#f4f4f4\"/>"
    "<rect width=\"1.2\" height=\"5\" fill=\"#cfcfcf\"/></pattern></defs>\n";

struct Colour {
  int red = 0, green = 0, blue = 0;
};

// Blue, orange and yellow as in memory charts: lightness 60, 46 and 81, for print in grey.
constexpr Colour kSlotColours[] = {{0x3c, 0x9b, 0xd0}, {0xbb, 0x4a, 0x05}, {0xf5, 0xc2, 0x4c}};
constexpr std::string_view kUpdateColour = "#2a1a35", kMemoryColour = "#b9c7d3";

// The later of a rank's chunks are paler.
Colour paler(Colour colour, double by) {
  const auto mix = [&](int part) {
    return static_cast<int>(std::lround(part + by * (255 - part)));
  };
  return {mix(colour.red), mix(colour.green), mix(colour.blue)};
}
std::string css(Colour c) { return fmt::format("#{:02x}{:02x}{:02x}", c.red, c.green, c.blue); }
std::string_view ink_on(Colour c) {
  return 0.3 * c.red + 0.59 * c.green + 0.11 * c.blue > 150 ? "#222" : "#fff";
}

// Per chunk, how pale it is: by its place among the chunks of its rank.
std::vector<double> shades(const Schedule& schedule) {
  constexpr double kPalest = 0.55;
  const std::vector<int> holder = holder_of(schedule);
  std::vector<double> before(holder.size(), 0);  // chunks of the same rank
  std::map<int, double> held;
  for (size_t chunk = 0; chunk < holder.size(); ++chunk) before[chunk] = held[holder[chunk]]++;
  for (size_t chunk = 0; chunk < holder.size(); ++chunk) {
    before[chunk] *= kPalest / std::max(1.0, held[holder[chunk]] - 1);
  }
  return before;
}

std::string_view word(SlotKind kind) {
  switch (kind) {
    case SlotKind::kForward:
      return "forward";
    case SlotKind::kBackward:
      return "backward";
    case SlotKind::kWeight:
      return "weights' gradients";
  }
  return "";
}

std::string percent(double share) { return fmt::format("{:.1f}%", 100 * share); }

class ScheduleDrawing {
 public:
  ScheduleDrawing(const std::vector<SchedulePanel>& panels, const std::string& title,
                  const std::string& subtitle)
      : panels_(panels), title_(title), subtitle_(subtitle) {
    double seconds = 0, bytes = 0;
    for (const SchedulePanel& panel : panels) {
      seconds = std::max(seconds, panel.simulated->seconds);
      for (const SimulatedRank& rank : panel.simulated->ranks) {
        bytes = std::max(bytes, static_cast<double>(rank.most_bytes));
      }
    }
    time_ = seconds_scale(0, seconds, 8);
    most_bytes_ = bytes;
    row_ = kLane + (bytes > 0 ? kMemory : 0) + kGap;
  }

  std::string draw() {
    double height = kTop;
    for (const SchedulePanel& panel : panels_) height += height_of(panel);
    const double width = kLeft + kWidth + kRight;
    Svg svg(width, height, title_, "slots of every rank over time");
    svg.raw(kBubble);
    svg.text(kLeft, 24, fitted(title_, 16, width - kLeft - 16), {.size = 16, .bold = true}, title_);
    svg.text(kLeft, 42, fitted(subtitle_, 11.5, width - kLeft - 16), {.size = 11.5, .fill = "#555"},
             subtitle_);
    draw_legend(svg);
    double y = kTop;
    for (const SchedulePanel& panel : panels_) {
      draw_panel(svg, panel, y);
      y += height_of(panel);
    }
    return svg.str();
  }

 private:
  double height_of(const SchedulePanel& panel) const {
    return kPanelHead + row_ * static_cast<double>(panel.simulated->ranks.size()) + kAxis;
  }
  // Whether a slot of these would be too narrow to be seen.
  bool narrow(const std::vector<TimedSlot>& slots) const {
    return std::any_of(slots.begin(), slots.end(), [&](const TimedSlot& slot) {
      return slot.end > slot.begin && x(slot.end) - x(slot.begin) < kLeastSlot;
    });
  }
  double x(double seconds) const { return kLeft + kWidth * time_.at(seconds); }

  static bool has_slot(const SchedulePanel& panel, SlotKind kind) {
    for (const auto& list : panel.schedule->lists) {
      for (const Slot& slot : list) {
        if (slot.kind == kind) return true;
      }
    }
    return false;
  }

  void draw_legend(Svg& svg) const {
    double at = kLeft;
    const auto entry = [&](const std::string& style, std::string_view text) {
      svg.rect(at, 55, 14, 12, style);
      svg.text(at + 19, 65, text, {.size = 11.5});
      at += 19 + text_width(text, 11.5) + 14;
    };
    const auto has = [&](auto&& claim) {
      return std::any_of(panels_.begin(), panels_.end(), claim);
    };
    const bool apart = std::all_of(panels_.begin(), panels_.end(), [](const SchedulePanel& panel) {
      return has_slot(panel, SlotKind::kWeight);
    });
    for (const SlotKind kind : {SlotKind::kForward, SlotKind::kBackward, SlotKind::kWeight}) {
      if (!has([&](const SchedulePanel& panel) { return has_slot(panel, kind); })) continue;
      const bool by_input = kind == SlotKind::kBackward && apart;
      entry("fill=\"" + css(kSlotColours[static_cast<size_t>(kind)]) + "\"",
            by_input ? "backward, by the input" : word(kind));
    }
    if (has([](const SchedulePanel& p) { return p.schedule->chunks > p.schedule->ranks; })) {
      const Colour forward = kSlotColours[0];
      entry("fill=\"" + css(paler(forward, 0.5)) + "\"", "paler: a later chunk of the rank");
    }
    const auto updates = [](const SimulatedRank& rank) { return !rank.after.empty(); };
    if (has([&](const SchedulePanel& p) {
          return std::ranges::any_of(p.simulated->ranks, updates);
        })) {
      entry(fmt::format("fill=\"{}\"", kUpdateColour), "update");
    }
    entry(std::string(kHatched), "bubble");
    if (most_bytes_ > 0) {
      entry(fmt::format("fill=\"{}\"", kMemoryColour),
            "kept by parts in flight, up to " + human(Bytes{static_cast<int64_t>(most_bytes_)}));
    }
  }

  void draw_panel(Svg& svg, const SchedulePanel& panel, double top) const {
    const Simulated& s = *panel.simulated;
    double words = kLeft;
    if (!panel.title.empty()) {
      svg.text(words, top + 16, panel.title, {.size = 12.5, .bold = true});
      words += 1.15 * text_width(panel.title, 12.5) + 16;  // bold is wider
    }
    const bool as_shares = std::any_of(s.slots.begin(), s.slots.end(),
                                       [&](const auto& slots) { return narrow(slots); });
    svg.text(words, top + 16, summary(s) + (as_shares ? "; heights are shares of the time" : ""),
             {.size = 11.5});
    const double y = top + kPanelHead - 8;
    const double ranks = static_cast<double>(s.ranks.size());
    const double bottom = y + row_ * ranks - kGap;
    for (const Tick& tick : time_.ticks) {
      svg.line(x(tick.at), y - 4, x(tick.at), bottom + 4,
               "stroke=\"#e2e2e2\" stroke-width=\"0.7\"");
      svg.text(x(tick.at), bottom + 19, tick.label, {.size = 11, .anchor = Anchor::kMiddle});
    }
    const std::vector<double> shade = shades(*panel.schedule);
    for (size_t rank = 0; rank < s.ranks.size(); ++rank) {
      draw_rank(svg, panel, shade, rank, y + row_ * static_cast<double>(rank));
    }
  }

  static std::string summary(const Simulated& s) {
    std::string text =
        fmt::format("step {}, bubble {}", human_seconds(s.seconds), percent(s.bubble));
    // Where ranks meet at the end of a step, own seconds are shorter by next to nothing.
    if (s.own_seconds < 0.99 * s.seconds) {
      text += fmt::format("; steps follow each other in {}, bubble {}",
                          human_seconds(s.own_seconds), percent(s.own_bubble));
    }
    if (s.message_seconds > 0) {
      text += fmt::format("; {} messages, {} of their time hidden", s.messages,
                          percent(std::max(0.0, 1 - s.waits_for_messages / s.message_seconds)));
    }
    return text;
  }

  void draw_rank(Svg& svg, const SchedulePanel& panel, const std::vector<double>& shade,
                 size_t rank, double y) const {
    const Simulated& s = *panel.simulated;
    const SimulatedRank& of = s.ranks[rank];
    svg.text(kLeft - 8, y + 14, fmt::format("rank {}", rank),
             {.size = 11.5, .anchor = Anchor::kEnd});
    svg.rect(kLeft, y, x(s.seconds) - kLeft, kLane, kHatched, fmt::format("rank {} waits", rank));
    const std::vector<TimedSlot>& slots = s.slots[rank];
    if (narrow(slots)) {
      draw_shares(svg, slots, y);
    } else {
      for (const TimedSlot& slot : slots) draw_slot(svg, *panel.schedule, shade, slot, y);
    }
    const auto draw_work = [&](const TimedWork& work, const char* what) {
      if (work.end <= work.begin) return;
      svg.rect(x(work.begin), y, x(work.end) - x(work.begin), kLane,
               fmt::format("fill=\"{}\"", kUpdateColour), what);
    };
    draw_work(of.before, "before the first slot");
    for (const TimedWork& work : of.after) draw_work(work, "update");
    const double idle = s.seconds > 0 ? 1 - of.busy / s.seconds : 0;
    svg.text(kLeft + kWidth + 10, y + 9, "idle " + percent(idle), {.size = 10.5});
    std::string kept = fmt::format("{} in flight", of.in_flight);
    if (most_bytes_ > 0) kept += ", " + human(Bytes{of.most_bytes});
    svg.text(kLeft + kWidth + 10, y + 22, kept, {.size = 10.5, .fill = "#555"});
    if (most_bytes_ > 0) draw_memory(svg, of, s.seconds, y + kLane);
  }

  void draw_slot(Svg& svg, const Schedule& schedule, const std::vector<double>& shade,
                 const TimedSlot& timed, double y) const {
    const double from = x(timed.begin), width = x(timed.end) - from;
    if (width <= 0) return;
    const Colour colour = paler(kSlotColours[static_cast<size_t>(timed.slot.kind)],
                                shade[static_cast<size_t>(timed.slot.chunk)]);
    std::string hint = fmt::format("{} of part {}", word(timed.slot.kind), timed.slot.part);
    if (schedule.chunks > schedule.ranks) hint += fmt::format(", chunk {}", timed.slot.chunk);
    hint += fmt::format(", {} to {}", human_seconds(timed.begin), human_seconds(timed.end));
    svg.rect(from, y, width, kLane,
             fmt::format("fill=\"{}\" stroke=\"#fff\" stroke-width=\"{}\"", css(colour),
                         width > 6 ? "0.8" : "0.3"),
             hint);
    const std::string number = std::to_string(timed.slot.part);
    for (const double size : {9.5, 7.5}) {
      if (text_width(number, size) + 1 > width) continue;
      svg.text(from + width / 2, y + kLane / 2 + 0.36 * size, number,
               {.size = size, .anchor = Anchor::kMiddle, .fill = ink_on(colour)});
      break;
    }
  }

  // Slots that are too narrow to be seen, as shares of the time: per column the kinds stand upon
  // each other, and what is left of the lane's height is idle.
  void draw_shares(Svg& svg, const std::vector<TimedSlot>& slots, double y) const {
    std::vector<std::array<double, 3>> share(kColumns, std::array<double, 3>{});
    for (const TimedSlot& slot : slots) {
      const double from = (x(slot.begin) - kLeft) / kColumn, to = (x(slot.end) - kLeft) / kColumn;
      for (int c = std::max(0, static_cast<int>(from)); c < std::min<double>(kColumns, to); ++c) {
        share[static_cast<size_t>(c)][static_cast<size_t>(slot.slot.kind)] +=
            std::max(0.0, std::min(to, c + 1.0) - std::max<double>(from, c));
      }
    }
    // From the top of the stack down, each over the one before.
    for (size_t layer = 3; layer-- > 0;) {
      std::string path = fmt::format("M{} {}", short_number(kLeft), short_number(y + kLane));
      double height = 0;
      for (size_t c = 0; c < share.size(); ++c) {
        double sum = 0;
        for (size_t kind = 0; kind <= layer; ++kind) sum += share[c][kind];
        const double next = std::round(2 * kLane * std::min(1.0, sum)) / 2;
        if (next != height) path += "v" + short_number(height - next);
        height = next;
        path += fmt::format("h{}", kColumn);
      }
      svg.path(path + fmt::format("V{}z", short_number(y + kLane)),
               "fill=\"" + css(kSlotColours[layer]) + "\"",
               fmt::format("{}, as a share of the time", word(static_cast<SlotKind>(layer))));
    }
  }

  void draw_memory(Svg& svg, const SimulatedRank& of, double seconds, double top) const {
    const double bottom = top + kMemory;
    svg.line(kLeft, bottom, x(seconds), bottom, "stroke=\"#999\" stroke-width=\"0.6\"");
    // Per pixel the most that is kept in it.
    constexpr int kPixels = static_cast<int>(kWidth);
    std::vector<double> most(kPixels, 0);
    for (size_t i = 0; i < of.bytes.size(); ++i) {
      const double until = i + 1 < of.bytes.size() ? of.bytes[i + 1].time : seconds;
      const int first = static_cast<int>(x(of.bytes[i].time) - kLeft + 1e-6);
      const int last = static_cast<int>(std::ceil(x(until) - kLeft - 1e-6));
      for (int p = std::max(0, first); p < std::min(kPixels, std::max(last, first + 1)); ++p) {
        double& here = most[static_cast<size_t>(p)];
        here = std::max(here, static_cast<double>(of.bytes[i].bytes));
      }
    }
    std::string path = fmt::format("M{} {}", short_number(kLeft), short_number(bottom));
    double height = 0;
    for (int p = 0; p < kPixels;) {
      const double bytes = most[static_cast<size_t>(p)];
      const int begin = p;
      while (p < kPixels && most[static_cast<size_t>(p)] == bytes) ++p;
      const double next = std::round(10 * (kMemory - 2) * bytes / most_bytes_) / 10;
      if (next != height) path += "v" + short_number(height - next);
      path += fmt::format("h{}", p - begin);
      height = next;
    }
    path += fmt::format("V{}z", short_number(bottom));
    svg.path(path, fmt::format("fill=\"{}\"", kMemoryColour),
             "kept by parts in flight, at most " + human(Bytes{of.most_bytes}));
  }

  const std::vector<SchedulePanel>& panels_;
  const std::string &title_, &subtitle_;
  Scale time_;
  double most_bytes_ = 0, row_ = 0;
};

}  // namespace

std::string schedule_chart(const std::vector<SchedulePanel>& panels, const std::string& title,
                           const std::string& subtitle) {
  return ScheduleDrawing(panels, title, subtitle).draw();
}

std::string schedule_chart(const Schedule& schedule, const Simulated& simulated,
                           const std::string& title, const std::string& subtitle) {
  return schedule_chart({{.schedule = &schedule, .simulated = &simulated}}, title, subtitle);
}

std::string schedule_chart(const StagesAtWork& work, const std::string& title,
                           const std::string& how) {
  const Schedule& schedule = work.planned.schedule;
  return schedule_chart(
      {{.title = "measured", .schedule = &schedule, .simulated = &work.real},
       {.title = "simulated", .schedule = &schedule, .simulated = &work.simulated}},
      title,
      fmt::format("{}, {} parts, {}; simulated from slots that each rank ran alone", schedule.name,
                  schedule.parts, how));
}

}  // namespace adjoint
