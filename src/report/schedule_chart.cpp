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

constexpr double kLeft = 64, kWidth = 900, kRight = 158, kAxis = 34;
constexpr double kLane = 20, kMemory = 22, kGap = 9;
constexpr double kHeadLine = 16;  // of a panel's title and summary
constexpr double kLeastSlot =
    1.5;  // pixels; where slots are narrower, shares of the time are drawn
constexpr int kColumn = 6, kColumns = static_cast<int>(kWidth) / kColumn;  // of shares
constexpr Tone kSlotTones[] = {Tone::kForward, Tone::kBackward, Tone::kWeights};

Tone tone_of(SlotKind kind) { return kSlotTones[static_cast<size_t>(kind)]; }
// Per chunk, how high its slots are drawn: the later of a rank's chunks are lower. Colours say the
// kind, so a paler one would be taken for another.
std::vector<double> heights_of(const Schedule& schedule) {
  constexpr double kLeast = 0.5;
  const std::vector<int> holder = holder_of(schedule);
  std::vector<double> before(holder.size(), 0);  // chunks of the same rank
  std::map<int, double> held;
  for (size_t chunk = 0; chunk < holder.size(); ++chunk) before[chunk] = held[holder[chunk]]++;
  for (size_t chunk = 0; chunk < holder.size(); ++chunk) {
    before[chunk] = 1 - before[chunk] * (1 - kLeast) / std::max(1.0, held[holder[chunk]] - 1);
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
    const double width = kLeft + kWidth + kRight;
    const std::vector<std::string> title = wrapped(title_, 16, width - kLeft - 16, true),
                                   subtitle = wrapped(subtitle_, 12, width - kLeft - 16);
    const double legend =
        24 + 20 * static_cast<double>(title.size()) - 4 + 17 * static_cast<double>(subtitle.size());
    const double top = legend + 20 * draw_legend(nullptr, legend) + 10;
    double height = top;
    for (const SchedulePanel& panel : panels_) height += height_of(panel);
    Svg svg(width, height, title_, description());
    const double next = svg.text(kLeft, 24, title, 20, {.size = 16, .bold = true});
    svg.text(kLeft, next - 2, subtitle, 17, {.size = 12, .tone = Tone::kSoft});
    draw_legend(&svg, legend);
    double y = top;
    for (const SchedulePanel& panel : panels_) {
      draw_panel(svg, panel, y);
      y += height_of(panel);
    }
    return svg.str();
  }

 private:
  std::string description() const {
    std::string out = "Slots of every rank over time.";
    for (const SchedulePanel& panel : panels_) {
      out += fmt::format(" {}{}{}.", panel.title, panel.title.empty() ? "" : ": ",
                         summary(*panel.simulated));
    }
    return out;
  }
  std::vector<std::string> head_of(const SchedulePanel& panel) const {
    const Simulated& s = *panel.simulated;
    const bool as_shares = std::any_of(s.slots.begin(), s.slots.end(),
                                       [&](const auto& slots) { return narrow(slots); });
    return wrapped(
        summary(s) + (as_shares ? "; where slots are narrow, heights are shares of the time" : ""),
        12, kWidth + kRight - 20);
  }
  double head_height(const SchedulePanel& panel) const {
    const double lines = static_cast<double>(head_of(panel).size()) + (panel.title.empty() ? 0 : 1);
    return kHeadLine * lines + 14;
  }
  double height_of(const SchedulePanel& panel) const {
    return head_height(panel) + row_ * static_cast<double>(panel.simulated->ranks.size()) + kAxis;
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

  // Returns the number of its lines; draws nothing without a picture.
  double draw_legend(Svg* svg, double y) const {
    double at = kLeft, lines = 1;
    const auto entry = [&](const std::string& style, std::string_view text, double high = 1) {
      const double wide = 19 + text_width(text, 11.5) + 14;
      if (at + wide > kLeft + kWidth + kRight) at = kLeft, y += 20, ++lines;
      if (svg) {
        svg->rect(at, y + 12 * (1 - high), 14, 12 * high, style);
        svg->text(at + 19, y + 10, text, {.size = 11.5});
      }
      at += wide;
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
      entry(filled(tone_of(kind)), by_input ? "backward, by the input" : word(kind));
    }
    if (has([](const SchedulePanel& p) { return p.schedule->chunks > p.schedule->ranks; })) {
      entry(filled(Tone::kBackward), "lower: a later chunk of the rank", 0.5);
    }
    const auto updates = [](const SimulatedRank& rank) { return !rank.after.empty(); };
    if (has([&](const SchedulePanel& p) {
          return std::ranges::any_of(p.simulated->ranks, updates);
        })) {
      entry(filled(Tone::kUpdate), "update, preparation");
    }
    entry(std::string(kIdleFill), "bubble: the rank waits");
    if (most_bytes_ > 0) {
      entry(filled(Tone::kActivations), "activations kept by parts in flight, up to " +
                                            human(Bytes{static_cast<int64_t>(most_bytes_)}));
    }
    return lines;
  }

  void draw_panel(Svg& svg, const SchedulePanel& panel, double top) const {
    const Simulated& s = *panel.simulated;
    double words = top + 14;
    if (!panel.title.empty()) {
      svg.text(kLeft, words, panel.title, {.size = 12.5, .bold = true});
      words += kHeadLine;
    }
    svg.text(kLeft, words, head_of(panel), kHeadLine, {.size = 12});
    const double y = top + head_height(panel);
    const double ranks = static_cast<double>(s.ranks.size());
    const double bottom = y + row_ * ranks - kGap;
    for (const Tick& tick : time_.ticks) {
      svg.line(x(tick.at), y - 4, x(tick.at), bottom + 4, stroked(Tone::kLine, 0.7));
      svg.text(x(tick.at), bottom + 19, tick.label, {.size = 11, .anchor = Anchor::kMiddle});
    }
    const std::vector<double> high = heights_of(*panel.schedule);
    for (size_t rank = 0; rank < s.ranks.size(); ++rank) {
      draw_rank(svg, panel, high, rank, y + row_ * static_cast<double>(rank));
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

  void draw_rank(Svg& svg, const SchedulePanel& panel, const std::vector<double>& high, size_t rank,
                 double y) const {
    const Simulated& s = *panel.simulated;
    const SimulatedRank& of = s.ranks[rank];
    svg.text(kLeft - 8, y + 14, fmt::format("rank {}", rank),
             {.size = 11.5, .anchor = Anchor::kEnd});
    svg.rect(kLeft, y, x(s.seconds) - kLeft, kLane, kIdleFill, fmt::format("rank {} waits", rank));
    const std::vector<TimedSlot>& slots = s.slots[rank];
    if (narrow(slots)) {
      draw_shares(svg, slots, y);
    } else {
      const double size = number_size(slots, high);
      for (const TimedSlot& slot : slots) draw_slot(svg, *panel.schedule, high, slot, y, size);
    }
    const auto draw_work = [&](const TimedWork& work, const char* what) {
      if (work.end <= work.begin) return;
      svg.rect(x(work.begin), y, x(work.end) - x(work.begin), kLane, filled(Tone::kUpdate), what);
    };
    draw_work(of.before, "before the first slot");
    for (const TimedWork& work : of.after) draw_work(work, "update");
    const double idle = s.seconds > 0 ? 1 - of.busy / s.seconds : 0;
    svg.text(kLeft + kWidth + 10, y + 9, "idle " + percent(idle), {.size = 10.5});
    std::string kept = fmt::format("{} in flight", of.in_flight);
    if (most_bytes_ > 0) kept += ", " + human(Bytes{of.most_bytes});
    svg.text(kLeft + kWidth + 10, y + 22, kept, {.size = 10.5, .tone = Tone::kSoft});
    if (most_bytes_ > 0) draw_memory(svg, of, s.seconds, y + kLane);
  }

  // The size of the numbers in a rank's slots: one for all, 0 where some slot has no room.
  double number_size(const std::vector<TimedSlot>& slots, const std::vector<double>& high) const {
    for (const double size : {10.5, 8.5}) {
      const bool fits = std::all_of(slots.begin(), slots.end(), [&](const TimedSlot& slot) {
        const double width = x(slot.end) - x(slot.begin);
        return width <= 0 || (text_width(std::to_string(slot.slot.part), size) + 1 <= width &&
                              size <= kLane * high[static_cast<size_t>(slot.slot.chunk)]);
      });
      if (fits) return size;
    }
    return 0;
  }

  void draw_slot(Svg& svg, const Schedule& schedule, const std::vector<double>& high,
                 const TimedSlot& timed, double y, double number_size) const {
    const double from = x(timed.begin), width = x(timed.end) - from;
    if (width <= 0) return;
    const Tone tone = tone_of(timed.slot.kind);
    const double height = kLane * high[static_cast<size_t>(timed.slot.chunk)];
    std::string hint = fmt::format("{} of part {}", word(timed.slot.kind), timed.slot.part);
    if (schedule.chunks > schedule.ranks) hint += fmt::format(", chunk {}", timed.slot.chunk);
    hint += fmt::format(", {} to {}", human_seconds(timed.begin), human_seconds(timed.end));
    if (height < kLane) svg.rect(from, y, width, kLane, filled(Tone::kPaper));  // it is not idle
    svg.rect(from, y + kLane - height, width, height,
             filled(tone, Tone::kPaper, width > 6 ? 0.8 : 0.3), hint);
    if (number_size <= 0) return;
    svg.text(from + width / 2, y + kLane - height / 2 + 0.36 * number_size,
             std::to_string(timed.slot.part),
             {.size = number_size, .anchor = Anchor::kMiddle, .tone = tone, .over = true});
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
      svg.path(path + fmt::format("V{}z", short_number(y + kLane)), filled(kSlotTones[layer]),
               fmt::format("{}, as a share of the time", word(static_cast<SlotKind>(layer))));
    }
  }

  void draw_memory(Svg& svg, const SimulatedRank& of, double seconds, double top) const {
    const double bottom = top + kMemory;
    svg.line(kLeft, bottom, x(seconds), bottom, stroked(Tone::kSoft, 0.6));
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
    svg.path(path, filled(Tone::kActivations),
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
