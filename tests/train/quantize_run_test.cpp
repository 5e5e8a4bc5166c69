// A trained run as codes: by rounding and by what data its linear maps read.
#include "train/quantize_run.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "base/error_text.h"
#include "device/parallel.h"
#include "ops/builder.h"
#include "run/run.h"
#include "train/generate.h"
#include "train/gptq.h"
#include "train/merge.h"
#include "train/train_folder.h"

namespace adjoint {
namespace {

CodeFormat format(const char* text) { return code_format(text).value(); }

struct Problem {
  Type type{Dtype::kF32, {{"o", 24}, {"i", 32}}};
  std::vector<float> w;
  std::vector<double> hessian;
};

// A map whose inputs are correlated, as those of a network are.
Problem problem(int samples = 200) {
  Problem p;
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  const int64_t n = p.type.dim(1);
  for (int64_t i = 0; i < p.type.num_elements(); ++i) {
    p.w.push_back(static_cast<float>(0.05 * normal(random)));
  }
  p.hessian.assign(n * n, 0);
  for (int s = 0; s < samples; ++s) {
    std::vector<double> x(n);
    const double common = normal(random);
    for (double& number : x) number = common + 0.5 * normal(random);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j) p.hessian[i * n + j] += x[i] * x[j];
    }
  }
  return p;
}

const char* const kFormats[] = {"int4/8",      "int4/32",      "int4/channel", "int4/tensor",
                                "int8/8",      "int8/channel", "int8/tensor",  "nf4/8",
                                "nf4/channel", "nf4/tensor"};

// ||XW - XQ|| is what it is to make small, and does.
TEST(Gptq, ChangesResultsLessThanRounding) {
  const Problem p = problem();
  for (const char* text : kFormats) {
    const CodeFormat f = format(text);
    const auto error = [&](const EncodedMatrix& made) {
      return output_error(p.w, decoded(made, p.type, f), p.type, p.hessian);
    };
    const double rounded = error(round_to_codes(p.w, p.type, f));
    const double calibrated = error(gptq(p.w, p.type, f, p.hessian));
    EXPECT_GT(calibrated, 0) << text;
    EXPECT_LT(calibrated, 0.5 * rounded) << text;
  }
}

// Inputs that are alike say nothing of one column by another: then it is rounding.
TEST(Gptq, IsRoundingWhereInputsAreIndependent) {
  Problem p = problem();
  const int64_t n = p.type.dim(1);
  for (int64_t i = 0; i < n * n; ++i) p.hessian[i] = i % (n + 1) == 0 ? 3.0 : 0.0;
  for (const char* text : kFormats) {
    const CodeFormat f = format(text);
    const EncodedMatrix a = gptq(p.w, p.type, f, p.hessian), b = round_to_codes(p.w, p.type, f);
    EXPECT_EQ(a.codes, b.codes) << text;
    EXPECT_EQ(a.scales, b.scales) << text;
  }
}

// Fewer samples than columns, inputs that are always 0, and no input at all.
TEST(Gptq, TakesAHessianThatIsSingular) {
  for (const int samples : {0, 1, 3}) {
    Problem p = problem(samples);
    const int64_t n = p.type.dim(1);
    for (int64_t i = 0; i < n; ++i) p.hessian[5 * n + i] = p.hessian[i * n + 5] = 0;
    const std::vector<float> made =
        decoded(gptq(p.w, p.type, format("int4/8"), p.hessian), p.type, format("int4/8"));
    for (const float x : made) EXPECT_TRUE(std::isfinite(x)) << samples;
  }
}

// The codes that were chosen are the codes that are found again.
TEST(Gptq, ARoundTripThroughCodesIsExact) {
  const Problem p = problem();
  for (const char* text : kFormats) {
    const CodeFormat f = format(text);
    const EncodedMatrix made = gptq(p.w, p.type, f, p.hessian);
    Scheme s;
    Builder b(s);
    const Value codes = s.add_input({.type = codes_type(p.type, f), .source = {"codes"}});
    const Value scales = s.add_input({.type = scales_type(p.type, f), .source = {"scales"}});
    s.outputs = {b.emit("dequantize", {codes, scales}, {{"format", std::string(name(f.kind))}})};
    adjoint::Run run(s, make_plan(s, {.threads = num_threads()}));
    run.write(codes, made.codes.data());
    run.write(scales, made.scales.data());
    run.step();
    const std::vector<float> want = decoded(made, p.type, f);
    EXPECT_EQ(run.values(s.outputs[0]), std::vector<double>(want.begin(), want.end())) << text;
  }
}

class QuantizeRun : public TrainFolder {
 protected:
  QuantizeResult quantize(const std::string& from, const std::string& to, const char* text,
                          bool calibrated) const {
    return quantize_run(out(from), out(to),
                        {.format = format(text), .calibrated = calibrated, .batches = 8},
                        {.threads = num_threads()});
  }
  std::string refusal(const std::string& from, const std::string& to, const char* text) const {
    return error_text([&] { quantize(from, to, text, true); });
  }
  std::map<std::string, std::string> bytes_of(const std::string& name) const {
    const SafetensorsFile file(out(name) / "model.safetensors");
    std::map<std::string, std::string> all;
    for (const SafetensorView& t : file.tensors()) {
      all[t.name] = t.dtype + std::string(static_cast<const char*>(t.data), t.size.count);
    }
    return all;
  }
  static std::optional<double> begins_with(const json& flags) {
    Trainer trainer(resolve_config({}, flags));
    return trainer.evaluate(std::atomic<bool>(false));
  }
};

TEST_F(QuantizeRun, CalibratedLosesLessThanRounding) {
  json flags = options(
      "base",
      {{"steps", 80}, {"lr", 0.01}, {"warmup", 5}, {"schedule", "constant"}, {"eval_batches", 0}});
  flags["set"]["dropout"] = 0;
  // A model of which rounding takes something: at other lengths of the run it takes less than 1e-3.
  train(flags);
  const QuantizeResult rounded = quantize("base", "rounded", "int4/channel", false);
  const QuantizeResult calibrated = quantize("base", "calibrated", "int4/channel", true);
  EXPECT_EQ(rounded.matrices, 8);
  EXPECT_EQ(rounded.calibrated, 0);
  EXPECT_EQ(calibrated.calibrated, 8);
  EXPECT_EQ(rounded.loss_before, calibrated.loss_before);
  const auto lost = [](const QuantizeResult& r) { return r.loss_after - r.loss_before; };
  EXPECT_GT(lost(rounded), 1e-3);
  EXPECT_LT(lost(calibrated), 0.5 * lost(rounded));
  const QuantizeResult exact = quantize("base", "int8", "int8/channel", true);
  EXPECT_NEAR(exact.loss_after, exact.loss_before, 1e-2);
}

// What was trained with the weights of codes loses nothing when they become codes.
TEST_F(QuantizeRun, IsWhatQatTrainedFor) {
  const json more = {{"steps", 60}, {"lr", 0.01}, {"schedule", "constant"}, {"eval_batches", 0}};
  json flags = options("qat", more);
  flags["stack"] = "qat(4, group=16)";
  const TrainResult trained = train(flags);
  const QuantizeResult made = quantize("qat", "codes", "int4/16", false);
  EXPECT_EQ(made.loss_before, trained.val_loss);
  EXPECT_NEAR(made.loss_after, made.loss_before, 1e-5);
  train(options("plain", more));
  const QuantizeResult other = quantize("plain", "plain_codes", "int4/16", false);
  EXPECT_GT(std::abs(other.loss_after - other.loss_before), 1e-4);
}

// A block begins at what the block before gave: the same codes, for work that is linear in depth.
TEST_F(QuantizeRun, CarriesStatesFromBlockToBlock) {
  std::map<int, int64_t> carried, anew;
  for (const int layers : {2, 3, 4}) {
    const std::string base = "base" + std::to_string(layers);
    json flags = options(base, {{"steps", 3}});
    flags["set"]["layers"] = layers;
    train(flags);
    const auto quantized = [&](const std::string& to, Bytes most) {
      return quantize_run(out(base), out(to),
                          {.format = format("int4/channel"), .batches = 3, .most_carried = most},
                          {.threads = num_threads()});
    };
    carried[layers] = quantized(base + "carried", {1 << 20}).calls;
    anew[layers] = quantized(base + "anew", {0}).calls;
    EXPECT_EQ(bytes_of(base + "carried"), bytes_of(base + "anew"));
  }
  EXPECT_EQ(carried[4] - carried[3], carried[3] - carried[2]) << "linear";
  EXPECT_GT(anew[4] - anew[3], anew[3] - anew[2]) << "quadratic";
  EXPECT_LT(carried[2], anew[2]);
}

// Whoever reads the folder has the loss that was told, and a run that goes on from it the codes.
TEST_F(QuantizeRun, IsReadByOthers) {
  train(options("base", {{"steps", 40}, {"lr", 0.01}}));
  const QuantizeResult made = quantize("base", "codes", "int4/16", true);
  // Four bits a number and a scale for sixteen.
  EXPECT_EQ(made.after.count * 32, made.before.count * 6);
  const json whole = {{"eval_batches", 0}};
  const auto from_codes = [&](const std::string& name, const std::string& stack) {
    json flags = tuned(name, stack, whole);
    flags["init"] = out("codes").string();
    return flags;
  };
  EXPECT_FALSE(Generator(out("codes"), {.threads = num_threads()})
                   .generate("the cat", {.tokens = 5, .temperature = 0}, nullptr)
                   .empty());
  // The same codes, what they stand for, and another format's of that.
  const std::string same = "freeze([attention, feed_forward]) | quantize(int4, group=16)";
  EXPECT_EQ(begins_with(from_codes("same", same)), made.loss_after);
  EXPECT_NEAR(begins_with(from_codes("plain", "")).value(), made.loss_after, 1e-5);
  const auto nf4 = begins_with(from_codes("nf4", "lora(rank=2) | quantize(nf4, group=16)"));
  EXPECT_NE(nf4, made.loss_after);
  EXPECT_NEAR(nf4.value(), made.loss_after, 0.05) << "codes of one format are none of another";
  train(from_codes("tuned", "lora(rank=2) | quantize(int4, group=16)"));
  const auto before = bytes_of("codes"), after = bytes_of("tuned");
  int codes = 0;
  for (const auto& [name, bytes] : before) {
    if (name.find(":codes") == name.npos && name.find(":scales") == name.npos) continue;
    EXPECT_TRUE(after.at(name) == bytes) << name;
    ++codes;
  }
  EXPECT_EQ(codes, 16);
  EXPECT_NE(error_of(resume("codes", {{"steps", 90}})).find("--init"), std::string::npos);
}

TEST_F(QuantizeRun, RefusesInOneSentence) {
  train(options("base"));
  EXPECT_TRUE(has(refusal("none", "to", "int4/16"), "there is no such folder"));
  EXPECT_TRUE(has(refusal("base", "base", "int4/16"), "already holds a run"));
  EXPECT_EQ(refusal("base", "to", "int4/24"),
            "quantize: groups of 24 do not divide the rows of 'block[0].qkv.weight', which are 32 "
            "long; the nearest group that fits every matrix is 16");
  train(tuned("lora", "lora(rank=2)"));
  EXPECT_TRUE(has(refusal("lora", "to", "int4/16"), "adjoint merge"));
  // It adds nothing, and codes would bring back what it leaves out.
  train(tuned("sparse", "sparse24"));
  EXPECT_TRUE(has(refusal("sparse", "to", "int4/16"),
                  ": its stack 'sparse24' makes another map of 'block[0].qkv', which codes of its "
                  "matrix would lose; make a plain model of it first, with adjoint merge"));
  merge_run(out("sparse"), out("merged"));
  EXPECT_EQ(refusal("merged", "sparse_codes", "int4/16"), "");
  quantize("base", "codes", "int8/channel", false);
  EXPECT_TRUE(has(refusal("codes", "to", "int4/16"), "holds codes already"));
  std::string lines;
  for (int i = 0; i < 60; ++i) lines += "{\"text\": \"the cat sat\"}\n";
  write_file_atomically(folder_ / "lines.jsonl", lines);
  const std::string file = (folder_ / "lines.jsonl").string();
  train(options("lines", {{"data", file}, {"tokenizer", "byte"}}));
  EXPECT_EQ(refusal("lines", "to", "int4/16"),
            file + ": wanted a plain text to calibrate with; say which with --data FILE");
  EXPECT_FALSE(fs::exists(out("to")));
}

}  // namespace
}  // namespace adjoint
