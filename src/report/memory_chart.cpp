#include "report/memory_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "report/memory_panel.h"

namespace adjoint {

namespace {

constexpr double kLeft = 84, kRight = 18, kPlotHeight = 300, kRowGap = 30;
constexpr double kGap = 34;        // between columns
constexpr double kLegendGap = 24;  // left of the legend
constexpr double kLegendName = 132, kLegendBytes = 78, kLegendLine = 19;
constexpr double kTitleSize = 16, kSubtitleSize = 12;

double plot_width(size_t columns) { return columns == 1 ? 640 : columns == 2 ? 430 : 330; }

// One axis for a row: up to the largest arena, with room above it for the label.
Scale scale_of(const std::vector<MemoryPanel>& row) {
  int64_t most = 1;
  for (const MemoryPanel& p : row) {
    most = std::max({most, p.timeline.arena.count, p.timeline.peak.count});
  }
  return bytes_scale(0, kHeadroom * static_cast<double>(most), 8);
}

std::string letter(size_t column) { return std::string(1, static_cast<char>('A' + column)); }

// The time span of all panels of a row: the longest one's, if all are in seconds and show all parts
// of the batch.
double span_of(const std::vector<MemoryPanel>& row, const Timeline& own) {
  double span = own.length();
  for (const MemoryPanel& p : row) {
    if (!p.timeline.in_seconds || p.timeline.body_once) return std::max(own.length(), 1e-9);
    span = std::max(span, p.timeline.length());
  }
  return std::max(span, 1e-9);
}

Frame frame_of(const std::vector<MemoryPanel>& row, size_t column, double width) {
  const Timeline& t = row[column].timeline;
  Frame frame{.x = kLeft + static_cast<double>(column) * (width + kGap),
              .width = width,
              .height = kPlotHeight,
              .span = span_of(row, t)};
  if (const int last = t.last_before_fold(); last >= 0) {
    frame.fold_at = t.moments[last].ends, frame.fold_width = kFoldWidth;
  }
  return frame;
}

std::string title_of(const std::vector<MemoryPanel>& row, size_t column, size_t columns) {
  return (columns > 1 ? letter(column) + ": " : "") + stack_in_short(row[column].title);
}

class Legend {
 public:
  Legend(Svg& svg, double x, double y, const std::vector<MemoryPanel>& row)
      : svg_(svg), x_(x), y_(y), row_(row) {}

  void draw(bool with_phases) {
    svg_.text(x_, y_ + 10, "at the peak", {.size = 11.5, .bold = true});
    for (size_t i = 0; row_.size() > 1 && i < row_.size(); ++i) {
      svg_.text(right_of(i), y_ + 10, letter(i),
                {.size = 11.5, .anchor = Anchor::kEnd, .bold = true}, row_[i].title);
    }
    y_ += 20;
    for (int layer = kNumCategories - 1; layer >= 0; --layer) draw_category(kLayers[layer]);
    rule();
    line("live", true, [](const Timeline& t) { return t.peak; });
    if (differs([](Bytes a, Bytes b) { return a != b; })) {
      const auto apart = [](Bytes a, Bytes b) {
        return human(a) != human(b);
      };  // then a line is drawn
      if (differs(apart)) svg_.line(x_, y_ + 5, x_ + 13, y_ + 5, stroked(Tone::kInk, 1, "4 2"));
      line("arena, with gaps", false, [](const Timeline& t) { return t.arena; });
    }
    if (with_phases) draw_phases();
  }

 private:
  double right_of(size_t column) const {
    return x_ + kLegendName + kLegendBytes * static_cast<double>(column + 1);
  }

  void rule() {
    svg_.line(x_, y_ - 1, right_of(row_.size() - 1), y_ - 1, stroked(Tone::kSoft, 0.7));
    y_ += 4;
  }

  template <class BytesOf>
  void line(std::string_view what, bool bold, const BytesOf& bytes_of) {
    svg_.text(x_ + 20, y_ + 10, what, {.size = 11.5, .bold = bold});
    for (size_t i = 0; i < row_.size(); ++i) {
      const Bytes bytes = bytes_of(row_[i].timeline);
      svg_.text(right_of(i), y_ + 10, human(bytes),
                {.size = 11.5, .anchor = Anchor::kEnd, .bold = bold},
                with_commas(bytes.count) + " bytes");
    }
    y_ += kLegendLine;
  }

  void draw_category(Category category) {
    const auto c = static_cast<size_t>(category);
    const auto uses = [&](const MemoryPanel& p) {
      return std::any_of(p.timeline.live.begin(), p.timeline.live.end(),
                         [&](const CategoryBytes& live) { return live[c] > 0; });
    };
    if (std::none_of(row_.begin(), row_.end(), uses)) return;
    svg_.rect(x_, y_, 13, 12, filled(tone_of(category), Tone::kSoft, 0.5));
    line(name(category), false, [&](const Timeline& t) { return Bytes{t.live[t.peak_at][c]}; });
  }

  template <class Differ>
  bool differs(const Differ& differ) const {
    return std::any_of(row_.begin(), row_.end(), [&](const MemoryPanel& p) {
      return differ(p.timeline.arena, p.timeline.peak);
    });
  }

  template <class Claim>
  bool any(const Claim& claim) const {
    return std::any_of(row_.begin(), row_.end(),
                       [&](const MemoryPanel& p) { return claim(p.timeline); });
  }

  void entry(const std::string& fill, std::string_view words) {
    svg_.rect(x_, y_ + 1, 13, 11, fill);
    svg_.text(x_ + 20, y_ + 10, words, {.size = 11.5});
    y_ += kLegendLine;
  }

  void draw_phases() {
    y_ += 14;
    svg_.text(x_, y_ + 10, "what runs", {.size = 11.5, .bold = true});
    y_ += 20;
    for (const Kind kind : {Kind::kForward, Kind::kBackward, Kind::kRecomputation, Kind::kUpdate}) {
      if (any([&](const Timeline& t) { return has_kind(t, kind); })) {
        entry(fill_of(kind), name(kind));
      }
    }
    if (any([](const Timeline& t) {
          return std::ranges::any_of(t.moments, [&](const Moment& m) {
            return m.beside && m.ends - m.begins > 0.002 * t.length();
          });
        })) {
      entry(filled(Tone::kPaper, Tone::kSoft, 0.5), "nothing, it waits");
    }
    if (any([](const Timeline& t) {
          return std::ranges::any_of(t.copies, [](CopyWay w) { return w != CopyWay::kNone; });
        })) {
      entry(filled(Tone::kCopies), "copies between tiers");
    }
    if (any([](const Timeline& t) { return !t.spoken.empty(); })) {
      entry(filled(Tone::kCollectives), "collectives over an axis");
    }
  }

  Svg& svg_;
  double x_, y_;
  const std::vector<MemoryPanel>& row_;
};

}  // namespace

std::string memory_chart(const MemoryChart& chart) {
  CHECK(!chart.rows.empty() && !chart.rows[0].empty(), "a chart has a panel");
  size_t columns = 0;
  for (const auto& row : chart.rows) columns = std::max(columns, row.size());
  const double width = plot_width(columns);
  const auto n = static_cast<double>(columns);
  const double legend = kLeft + n * width + (n - 1) * kGap + kLegendGap;
  const double full = legend + kLegendName + n * kLegendBytes + kRight;
  const std::vector<std::string> title = wrapped(chart.title, kTitleSize, full - kLeft, true),
                                 subtitle = wrapped(chart.subtitle, kSubtitleSize, full - kLeft);
  const double top = 26 + 20 * static_cast<double>(title.size()) - 20 +
                     17 * static_cast<double>(subtitle.size()) + 10;
  std::vector<PanelRows> around;
  double height = top;
  for (const auto& row : chart.rows) {
    PanelRows all;
    for (size_t c = 0; c < row.size(); ++c) {
      all.unite(rows_of(title_of(row, c, columns), row[c].timeline, frame_of(row, c, width)));
    }
    around.push_back(all);
    height += all.above() + kPlotHeight + all.below() + kRowGap;
  }
  std::string said;
  for (const auto& row : chart.rows) {
    for (const MemoryPanel& p : row) {
      said +=
          fmt::format("{}: peak {} {}. ", p.title, human(p.timeline.peak), p.timeline.peak_words);
    }
  }
  Svg svg(full, height - kRowGap + 8, chart.title, said);
  const double next = svg.text(kLeft, 24, title, 20, {.size = kTitleSize, .bold = true});
  svg.text(kLeft, next - 2, subtitle, 17, {.size = kSubtitleSize, .tone = Tone::kSoft});
  double y = top;
  for (size_t r = 0; r < chart.rows.size(); ++r) {
    const std::vector<MemoryPanel>& row = chart.rows[r];
    const Scale scale = scale_of(row);
    y += around[r].above();
    for (size_t c = 0; c < row.size(); ++c) {
      Frame frame = frame_of(row, c, width);
      frame.y = y;
      draw_panel(svg, title_of(row, c, columns), row[c].timeline, frame, scale, around[r], c == 0);
    }
    Legend(svg, legend, y, row).draw(r == 0);
    y += kPlotHeight + around[r].below() + kRowGap;
  }
  return svg.str();
}

MemoryChart chart_of(std::string title, std::string subtitle,
                     const std::vector<ChartedStep>& steps) {
  MemoryChart chart{.title = std::move(title), .subtitle = std::move(subtitle), .rows = {}};
  const bool host = std::any_of(steps.begin(), steps.end(),
                                [](const ChartedStep& s) { return s.plan.host.size.count > 0; });
  for (const Tier tier : {Tier::kDevice, Tier::kHost}) {
    if (tier == Tier::kHost && !host) continue;
    std::vector<MemoryPanel> row;
    for (const ChartedStep& s : steps) {
      std::string name = s.title;
      if (host) name = (tier == Tier::kHost ? "host, " : "device, ") + name;
      row.push_back({name, make_timeline(s.scheme, s.plan,
                                         {.tier = tier,
                                          .seconds = s.seconds,
                                          .clock = s.clock,
                                          .copies_overlap = copies_overlap(s.plan),
                                          .collectives_overlap = true})});
    }
    chart.rows.push_back(std::move(row));
  }
  return chart;
}

}  // namespace adjoint
