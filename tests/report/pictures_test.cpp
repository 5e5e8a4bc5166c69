// What every picture holds: no words are cut, overlap or leave the picture; phases have names,
// parts of a split batch are drawn or folded, and copies are where the prediction has them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error_text.h"
#include "cost/sheet.h"
#include "plan/timing.h"
#include "report/choice_labels.h"
#include "report/drawn_text.h"
#include "report/memory_chart.h"
#include "report/pareto_chart.h"
#include "report/planned.h"
#include "report/scale.h"
#include "report/schedule_chart.h"
#include "report/xml.h"

namespace adjoint {
namespace {

// A step planned for a GPU, and what its description predicts.
struct OnGpu {
  Planned planned;
  StepTime time;
};
OnGpu on_gpu(const std::string& stack) {
  const Scheme forward =
      elaborate_preset("char", {{"layers", 3}, {"hidden", 32}, {"batch", 8}, {"seq", 16}});
  OnGpu out{{training_step(forward, {.stack = stack, .target = Target::kCuda}), {}}, {}};
  out.planned.plan = make_plan(out.planned.scheme, {.threads = 1, .target = Target::kCuda});
  out.time = predict_time(out.planned.scheme, out.planned.plan, {.sheet = find_device("h200")});
  return out;
}

Timeline predicted(const OnGpu& step) {
  return make_timeline(step.planned.scheme, step.planned.plan,
                       {.seconds = step.time.seconds,
                        .copies_overlap = copies_overlap(step.planned.plan),
                        .collectives_overlap = true});
}

const std::vector<const char*>& gpu_stacks() {
  static const std::vector<const char*> all = {"",
                                               "offload(activations)",
                                               "offload(optimizer)",
                                               "offload(parameters) | accumulate(2)",
                                               "offload(activations) | accumulate(8)",
                                               "checkpoint(block) | accumulate(4)",
                                               "data_parallel(2)",
                                               "data_parallel(2) | accumulate(8)"};
  return all;
}

std::string drawn(const OnGpu& step, const std::string& title) {
  return memory_chart(chart_of("a model of some name, batch 8 x 16 tokens", "as planned",
                               {{.title = title,
                                 .scheme = step.planned.scheme,
                                 .plan = step.planned.plan,
                                 .seconds = step.time.seconds,
                                 .clock = "predicted for h200"}}));
}

TEST(Pictures, TheCheckerOfWordsSeesMistakes) {
  const auto picture = [](const std::string& words) {
    return "<svg width=\"100\" height=\"50\">" + words + "</svg>";
  };
  const std::string first = "<text x=\"10\" y=\"20\" font-size=\"10\" fill=\"#000\">first</text>";
  EXPECT_EQ(text_mistake(picture(first)), "");
  EXPECT_TRUE(has(text_mistake(picture(first + first)), "overlap"));
  EXPECT_TRUE(has(text_mistake(picture("<text x=\"90\" y=\"20\" font-size=\"10\">first</text>")),
                  "leaves"));
  EXPECT_TRUE(has(text_mistake(picture("<text x=\"9\" y=\"20\" font-size=\"9\">a\u2026</text>")),
                  "is cut"));
  EXPECT_TRUE(has(text_mistake(picture("")), "no words"));
}

TEST(Pictures, WordsOfMemoryChartsHaveRoom) {
  const std::string name =
      "bf16 | accumulate(4) | checkpoint(block) | offload(optimizer) | chunk_readout(rows=1024) | "
      "reside(kept=[\"block[0..11].attention#1\", \"block[0..11].attention#1.lse\"])";
  for (const Case& c : cases()) {
    const Planned p = planned(c.preset, c.stack, c.clip);
    for (const std::string& title : {c.stack, name}) {
      const ChartedStep one{title, p.scheme, p.plan};
      for (const std::vector<ChartedStep>& steps :
           {std::vector{one}, {one, one}, {one, one, one}}) {
        const std::string svg = memory_chart(chart_of("the model", "what is drawn", steps));
        EXPECT_EQ(xml_mistake(svg), "") << said(c);
        EXPECT_EQ(text_mistake(svg), "") << said(c) << " beside " << steps.size();
      }
    }
  }
  for (const char* stack : gpu_stacks()) {
    const OnGpu step = on_gpu(stack);
    EXPECT_EQ(text_mistake(drawn(step, stack)), "") << stack;
    EXPECT_EQ(xml_mistake(drawn(step, stack)), "") << stack;
  }
}

// The names are words above the plot, not only colours.
TEST(Pictures, EveryPhaseIsNamed) {
  for (const char* stack : gpu_stacks()) {
    const OnGpu step = on_gpu(stack);
    const std::vector<DrawnText> texts = drawn_texts(drawn(step, "the stack"));
    const Timeline t = predicted(step);
    ASSERT_FALSE(t.phases.empty());
    for (const Stretch& phase : t.phases) {
      // Above the plot, which begins below its title; the legend at its right is farther down.
      const auto title = std::find_if(texts.begin(), texts.end(),
                                      [](const DrawnText& d) { return has(d.words, "the stack"); });
      ASSERT_NE(title, texts.end()) << stack;
      EXPECT_TRUE(std::any_of(texts.begin(), texts.end(),
                              [&](const DrawnText& d) {
                                return d.words == phase.name && d.y0 > title->y1 &&
                                       d.y1 < title->y1 + 100;
                              }))
          << stack << ": " << phase.name;
    }
  }
}

// The chart's clock is the prediction's: it ends when the predicted step does.
TEST(Pictures, AStepIsAsLongAsPredicted) {
  bool hides = false;
  for (const char* stack : gpu_stacks()) {
    const OnGpu step = on_gpu(stack);
    const Timeline t = predicted(step);
    EXPECT_NEAR(t.step(), step.time.step, 1e-9 * step.time.step) << stack;
    const double alone = step.time.work + step.time.copies + step.time.ranks;
    hides |= step.time.step < 0.99 * alone;
    for (size_t i = 1; i < t.moments.size(); ++i) {
      ASSERT_EQ(t.moments[i].begins, t.moments[i - 1].ends) << stack << " at " << i;
    }
  }
  EXPECT_TRUE(hides) << "no stack of this test hides anything";
}

TEST(Pictures, CopiesAreDrawnWhenThePredictionHasThem) {
  const OnGpu step = on_gpu("offload(activations)");
  const Timeline t = predicted(step);
  const std::string svg = drawn(step, "offloaded");
  // The plot is 640 wide from 84 on, all of it the step.
  const auto x = [&](double seconds) { return 84 + 640 * seconds / t.step(); };
  std::vector<std::pair<double, double>> bars;
  const std::string hint = "<title>copies to host</title>";
  for (size_t at = svg.find(hint); at != std::string::npos; at = svg.find(hint, at + 1)) {
    const std::string rect = svg.substr(svg.rfind("<rect", at), 200);
    const double from = std::stod(attribute_of(rect, "x"));
    bars.emplace_back(from, from + std::stod(attribute_of(rect, "width")));
  }
  ASSERT_FALSE(bars.empty());
  size_t copies = 0, beside = 0;
  for (const Moment& m : t.moments) {
    if (t.copies[m.place] != CopyWay::kToHost) continue;
    ++copies;
    EXPECT_TRUE(m.beside);
    EXPECT_TRUE(std::any_of(bars.begin(), bars.end(),
                            [&](const auto& bar) {
                              return bar.first <= x(m.from) + 0.01 && bar.second >= x(m.to) - 0.01;
                            }))
        << "a copy from " << m.from << " to " << m.to << " is not drawn";
    for (const Moment& other : t.moments) {
      beside += !other.beside && other.from < m.to && m.from < other.to;
    }
  }
  EXPECT_GT(copies, 0u);
  EXPECT_GT(beside, copies) << "arithmetic goes on while copies run";
}

TEST(Pictures, PartsAreNumberedAndManyAreFolded) {
  const std::string two = drawn(on_gpu("accumulate(2)"), "two");
  EXPECT_TRUE(has(two, ">part 1") && has(two, ">part 2"));
  EXPECT_FALSE(has(two, "are like"));
  const OnGpu step = on_gpu("accumulate(8)");
  const std::string eight = drawn(step, "eight");
  EXPECT_TRUE(has(eight, ">part 1 of 8") && !has(eight, ">part 2"));
  EXPECT_TRUE(has(eight, ">2 to 8<") && has(eight, ">are like<") && has(eight, ">part 1<"));
  const Timeline t = predicted(step);
  EXPECT_TRUE(t.body_once);
  EXPECT_NEAR(t.left_out, t.step() - t.length(), 1e-12);
  EXPECT_TRUE(has(eight, "the step takes " + human_seconds(step.time.step)));
}

TEST(Pictures, AStackInACaptionIsShortNotCut) {
  EXPECT_EQ(stack_in_short("bf16 | accumulate(4)"), "bf16 | accumulate(4)");
  EXPECT_EQ(stack_in_short("a | reside(kept=[\"block[0..11].x\", \"block[0..11].y\"]) | b"),
            "a | reside(...) | b");
  EXPECT_EQ(stack_in_short("odd(1"), "odd(1");
  EXPECT_EQ(wrapped("one two three", 10, 45), (std::vector<std::string>{"one two", "three"}));
  EXPECT_EQ(wrapped("", 10, 45), std::vector<std::string>());
  for (const std::string& line : wrapped(std::string(200, 'x') + " end", 10, 45)) {
    EXPECT_LE(text_width(line, 10), 45);
  }
}

TEST(ChoiceLabels, SayWhatDiffersFromTheChoiceAbove) {
  const std::vector<std::string> stacks = {
      "accumulate(8) | checkpoint(all)",
      "accumulate(8) | -cheap | reside(kept=[\"block[0..11].attention#1\", "
      "\"block[0..10].add#2\"])",
      "accumulate(8) | -cheap | reside(kept=[\"block[0..11].qkv\", \"block[0..10].add#2\"])",
      "accumulate(8) | -cheap | reside(host=[\"block[0..11].qkv\", \"block[0..10].add#2\"], "
      "kept=[\"block[0..11].up\"])",
      "accumulate(4) | -cheap",
      "-cheap",
      "",
      ""};
  EXPECT_EQ(choice_labels(stacks),
            (std::vector<std::string>{"accumulate(8) | checkpoint(all)",
                                      "with reside(...); without cheap, checkpoint(all)",
                                      "reside: kept + qkv; kept \u2212 attention#1",
                                      "reside: host +2, kept +1 \u22122 tensors of a block",
                                      "accumulate(4) instead of accumulate(8); without reside(...)",
                                      "without accumulate(4)", "with cheap", "the same stack"}));
  EXPECT_EQ(choice_labels({" "}), std::vector<std::string>{"plain"});
}

ParetoChart curve(std::vector<double> seconds) {
  ParetoChart chart{.title = "gpt2, batch 8 x 1024 tokens", .subtitle = "predicted", .points = {}};
  for (size_t i = 0; i < seconds.size(); ++i) {
    chart.points.push_back(
        {.bytes = {(int64_t{20} + 3 * static_cast<int64_t>(i)) << 27},
         .seconds = seconds[i],
         .label = "accumulate(4) instead of accumulate(8), choice " + std::to_string(i)});
  }
  chart.everything_kept = chart.points.back().bytes;
  return chart;
}

TEST(ParetoChart, CutsOffWhatWouldFlattenTheRestAndSaysSo) {
  const ParetoChart chart = curve({14.4, 6.3, 6.1, 5.9, 5.7, 5.65, 5.64, 5.6});
  const std::vector<bool> cut = cut_off(chart.points);
  EXPECT_TRUE(cut[0]);
  EXPECT_EQ(std::count(cut.begin(), cut.end(), true), 1);
  const std::string svg = pareto_chart(chart);
  EXPECT_TRUE(
      has(svg, "The axis of time is cut off: choice 1, with 2.50 GiB, takes 2.57x (14.4 s)."));
  EXPECT_TRUE(has(svg, ">1: 2.57x<"));
  EXPECT_EQ(text_mistake(svg), "");
  // The rest has the whole height: the slowest of it is near the upper edge, far from the fastest.
  const auto y_of = [&](size_t choice) {
    const size_t at = svg.find("choice " + std::to_string(choice) + ": ", svg.find("<circle"));
    return std::stod(attribute_of(svg.substr(svg.rfind("<circle", at), 80), "cy"));
  };
  EXPECT_GT(y_of(7) - y_of(1), 220);
  // Neither an even curve nor a few points are cut.
  for (const auto& seconds : {std::vector<double>{5, 4, 3, 2, 1}, {9, 1, 1}, {2, 2, 2, 2, 2}}) {
    const std::vector<bool> none = cut_off(curve(seconds).points);
    EXPECT_EQ(std::count(none.begin(), none.end(), true), 0);
    EXPECT_FALSE(has(pareto_chart(curve(seconds)), "cut off"));
  }
}

TEST(ParetoChart, AxesAreRelativeAndSecondsAreSaidOnce) {
  const std::string svg = pareto_chart(curve({2.5, 2.3, 2.2, 2.1, 2.0}));
  EXPECT_TRUE(has(svg, "time of a step; 1.00x is 2.00 s, the fastest"));
  for (const char* label : {">1.00x<", ">1.25x<", ">100%<", ">3.0 GiB<"}) {
    EXPECT_TRUE(has(svg, label)) << label;
  }
  EXPECT_TRUE(has(svg, "of the step with everything kept, 4.00 GiB"));
}

// Many points, near each other, and long labels.
TEST(ParetoChart, NumbersAndLabelsHaveRoom) {
  std::vector<double> seconds;
  for (int i = 0; i < 26; ++i) seconds.push_back(5 + std::exp(-0.3 * i));
  ParetoChart chart = curve(seconds);
  for (size_t i = 0; i < 26; ++i) {
    chart.points[i].bytes = {(int64_t{3} << 30) + static_cast<int64_t>(i * i) * (1 << 21)};
    chart.points[i].label += " with a great many other words that take more than one line";
  }
  chart.points[9].chosen = true;
  chart.budget = chart.points[12].bytes;
  const std::string svg = pareto_chart(chart);
  EXPECT_EQ(text_mistake(svg), "");
  EXPECT_EQ(xml_mistake(svg), "");
  const std::vector<DrawnText> texts = drawn_texts(svg);
  for (int i = 1; i <= 26; ++i) {  // at its point, and in the list
    EXPECT_EQ(std::count_if(texts.begin(), texts.end(),
                            [&](const DrawnText& d) {
                              const std::string number = std::to_string(i);
                              return d.words == number || d.words.starts_with(number + ": ");
                            }),
              2)
        << i;
  }
}

TEST(Pictures, WordsOfSchedulesHaveRoom) {
  for (const std::string& name : schedule_names()) {
    const int v = name == "interleaved" ? 2 : 1;
    const Schedule schedule = make_schedule(name, 4, 8, v);
    SlotTimes times = equal_times(4 * v, 0.01, 0.01, 0.01, 0.001);
    times.kept.assign(times.forward.size(), 3 << 20);
    times.kept_for_weights.assign(times.forward.size(), 1 << 20);
    times.update = 0.005;
    const Simulated simulated = simulate(schedule, times);
    const std::string svg = schedule_chart(
        {{"measured", &schedule, &simulated}, {"simulated", &schedule, &simulated}},
        "gpt2-xl, batch 64 x 1024 tokens, adamw with clipping", "ranks over one step, predicted");
    EXPECT_EQ(text_mistake(svg), "") << name;
  }
}

// Each picture describes itself to who cannot see it, and has a style for dark paper.
TEST(Pictures, DescribeThemselvesAndKnowTheDark) {
  const Schedule schedule = make_schedule("1f1b", 2, 2, 1);
  const Simulated simulated = simulate(schedule, equal_times(2, 1, 1, 1));
  for (const std::string& svg : {drawn(on_gpu(""), "plain"), pareto_chart(curve({2, 1})),
                                 schedule_chart(schedule, simulated, "a title", "a subtitle")}) {
    EXPECT_TRUE(has(svg, "prefers-color-scheme: dark"));
    const size_t title = svg.find("<title>"), said = svg.find("<desc>");
    ASSERT_NE(said, std::string::npos);
    EXPECT_LT(title, said);
    EXPECT_GT(svg.find("</desc>") - said, 30u);
    // Every colour is of the palette, with the class that changes it.
    for (size_t at = svg.find("=\"#"); at != std::string::npos; at = svg.find("=\"#", at + 1)) {
      const std::string element =
          svg.substr(svg.rfind('<', at), svg.find('>', at) - svg.rfind('<', at));
      EXPECT_TRUE(has(element, "class=\"")) << element;
    }
  }
}

}  // namespace
}  // namespace adjoint
