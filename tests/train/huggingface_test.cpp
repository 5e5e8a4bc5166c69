// Folders of Hugging Face's format, one tiny model of each family, held to the logits, gradients
// and greedy tokens that transformers gave in float64.
#include <algorithm>

#include "analysis/totals.h"
#include "base/error_text.h"
#include "base/file.h"
#include "functors/pipeline.h"
#include "models/format_config.h"
#include "train/huggingface_folders.h"

namespace adjoint {
namespace {

using nlohmann::json;

class HuggingFace : public testing::TestWithParam<const char*> {
 protected:
  fs::path folder_ = family_folder(GetParam());
};

TEST_P(HuggingFace, LogitsAreAsGoodAsThoseOfTransformers) {
  const ReferenceFile reference(folder_);
  const Numbers logits = logits_for(folder_, reference.ids("tokens"), reference.batch());
  EXPECT_LE(distance(logits, reference.doubles("logits")), 2 * reference.said("float32_error"));
}

TEST_P(HuggingFace, GradientsAgree) {
  const ReferenceFile reference(folder_);
  const LoadedModel loaded(folder_.string(), reference.batch(), reference.seq());
  Scheme step = training_step(loaded.model.forward(), {});
  const std::vector<StoredTensors> parameters = stored_tensors(loaded.model);
  const size_t first = step.outputs.size();
  for (const StoredTensors& p : parameters) {
    step.outputs.push_back(step.find({p.source.path, "grad"}).value());
  }
  const auto run = loaded.running(step);
  run->write(input_named(step, "tokens"), reference.ids("tokens").data());
  run->write(input_named(step, "targets"), reference.ids("targets").data());
  run->set_number(input_named(step, "rate"), 0);
  run->step();
  const auto counted = static_cast<double>(reference.batch() * reference.seq());
  for (size_t p = 0; p < parameters.size(); ++p) {
    const StoredTensors& stored = parameters[p];
    const Numbers found = run->values(step.outputs[first + p]);
    const size_t each = found.size() / stored.names.size();
    for (size_t e = 0; e < stored.names.size(); ++e) {
      const SafetensorView* view = reference.gradient(stored.names[e]);
      ASSERT_TRUE(view) << stored.names[e];
      std::vector<float> wanted(each);
      read_floats(*view, 0, wanted);
      Numbers ours(each), theirs(wanted.begin(), wanted.end());
      const size_t rows = stored.transposed ? stored.shape[0] : 1, columns = each / rows;
      for (size_t i = 0; i < each; ++i) {  // i of theirs
        const size_t place = stored.transposed ? i % columns * rows + i / columns : i;
        ours[i] = found[e * each + place] / counted;
      }
      EXPECT_LE(distance(ours, theirs), 1e-4 * distance(Numbers(each), theirs)) << stored.names[e];
    }
  }
}

TEST_P(HuggingFace, GreedyTokensAgreeUntilTwoAreAsGood) {
  const ReferenceFile reference(folder_);
  const std::vector<int32_t> greedy = reference.ids("greedy");
  const Numbers margins = reference.doubles("margins");
  const size_t prompt = greedy.size() - margins.size();
  std::vector<int32_t> tokens(greedy.begin(), greedy.begin() + prompt);
  for (size_t i = 0; i < margins.size() && margins[i] >= 1e-4; ++i) {
    const Numbers logits = logits_for(folder_, tokens, 1);
    const size_t vocab = logits.size() / tokens.size();
    const auto last = logits.end() - static_cast<int64_t>(vocab);
    tokens.push_back(static_cast<int32_t>(std::max_element(last, logits.end()) - last));
    ASSERT_EQ(tokens.back(), greedy[prompt + i]) << "token " << i;
  }
}

TEST_P(HuggingFace, GeneratesTheTokensOfTransformers) {
  EXPECT_EQ(expect_greedy_tokens(folder_), 24u);
}

// What is read from a config.json gives a config.json that is read as the same.
TEST_P(HuggingFace, ConfigIsWrittenAsItIsRead) {
  const LoadedModel loaded(folder_.string(), 1, 4);
  const BoundModel& model = loaded.model;
  const OrderedJson written =
      written_config(model.document(), model.format(), model.text().file, model.settings());
  const Settings again = read_config(model.document(), model.format(), model.text().file,
                                     json::parse(written.dump()), "written");
  const json config = json::parse(read_file(folder_ / "config.json"));
  const Settings before =
      read_config(model.document(), model.format(), model.text().file, config, "config.json");
  EXPECT_EQ(again, before) << written.dump(2);
}

INSTANTIATE_TEST_SUITE_P(All, HuggingFace, testing::ValuesIn(kFamilies),
                         [](const auto& info) { return std::string(info.param); });

// A family needs a text and nothing else.
TEST(OwnFamily, IsATextBesideTheFolder) {
  const TempFolder folder;
  std::string text(find_model("llama-tiny").text);
  text.replace(text.find("LlamaForCausalLM"), 16, "MineForCausalLM");
  write_file_atomically(folder / "mine.scheme", text);
  fs::create_directories(folder / "weights");
  json config = json::parse(read_file(family_folder("llama") / "config.json"));
  config["architectures"] = {"MineForCausalLM"};
  write_file_atomically(folder / "weights" / "config.json", config.dump());
  fs::copy_file(family_folder("llama") / "model.safetensors",
                folder / "weights" / "model.safetensors");
  const std::string named = (folder / "mine.scheme").string() + ":" + (folder / "weights").string();
  const ReferenceFile reference(family_folder("llama"));
  EXPECT_EQ(logits_for(named, reference.ids("tokens"), 2),
            logits_for(family_folder("llama"), reference.ids("tokens"), 2));
  EXPECT_TRUE(has(error_text([&] { find_model((folder / "weights").string()); }),
                  "no family knows architectures [\"MineForCausalLM\"]"));
}

// ---- bad input

class BadFolder : public testing::Test {
 protected:
  // The llama folder with some fields replaced.
  fs::path with_config(const json& patch) {
    json config = json::parse(read_file(family_folder("llama") / "config.json"));
    config.merge_patch(patch);
    write_file_atomically(at("config.json"), config.dump());
    if (!fs::exists(at("model.safetensors"))) {
      fs::copy_file(family_folder("llama") / "model.safetensors", at("model.safetensors"));
    }
    return here();
  }
  // ... with some tensors changed.
  fs::path with_tensors(const std::function<void(std::vector<SafetensorView>&)>& change,
                        const std::string& file = "model.safetensors") {
    const SafetensorsFile from(family_folder("llama") / "model.safetensors");
    std::vector<SafetensorView> views = from.tensors();
    change(views);
    with_config(json::object());
    AtomicFile out(at(file));
    write_safetensors(out, views, {});
    out.commit();
    return here();
  }
  fs::path at(const std::string& file) const { return folder_ / file; }
  fs::path here() const { return folder_ / "."; }
  static std::string refusal(const fs::path& folder, std::optional<int64_t> vocab = {}) {
    return error_text([&] {
      const BoundModel model(find_model(folder.string()), {.seq = 4, .vocab = vocab});
      const Scheme scheme = without_randomness(logits_of(model.forward()));
      adjoint::Run run(scheme, make_plan(scheme, {.threads = num_threads()}));
      ModelFolder(folder).load(model, run);
    });
  }
  void expect_refused(const fs::path& folder, const std::string& why) {
    const std::string text = refusal(folder);
    EXPECT_NE(text.find(why), std::string::npos) << "wanted: " << why << "\nfound: " << text;
  }
  TempFolder folder_;
};

TEST_F(BadFolder, ConfigIsRefusedBySentencesThatNameTheField) {
  EXPECT_EQ(refusal(with_config(json::object())), "");
  expect_refused(with_config({{"architectures", {"FooForCausalLM"}}, {"model_type", "foo"}}),
                 "config.json: no family knows architectures [\"FooForCausalLM\"], model_type "
                 "\"foo\"; there are ");
  expect_refused(here(), "MixtralForCausalLM (models/mixtral.scheme)");
  expect_refused(with_config({{"quantization_config", {{"bits", 4}}}}),
                 "does not say what quantization_config.bits (4) means");
  expect_refused(with_config({{"num_hidden_layers", nullptr}}),
                 "config.json: wanted the field num_hidden_layers, which is 'layers' of "
                 "models/llama.scheme, found none");
  expect_refused(with_config({{"num_hidden_layers", 2.5}}),
                 "num_hidden_layers must be a whole number from 1 to 2^40, found 2.5");
  expect_refused(with_config({{"num_hidden_layers", "two"}}),
                 "num_hidden_layers must be a number, found \"two\"");
  expect_refused(with_config({{"hidden_act", "relu"}}),
                 "hidden_act must be \"silu\" for LlamaForCausalLM, found \"relu\"");
  expect_refused(with_config({{"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2}}},
                              {"rope_parameters", {{"rope_type", nullptr}}}}),
                 "must be \"default\" or \"linear\" or \"llama3\" or \"yarn\" for "
                 "LlamaForCausalLM, found \"dynamic\"");
  expect_refused(with_config({{"rope_theta", 500}}),
                 "rope_theta is 500, and rope_parameters.rope_theta, which means the same, is "
                 "10000.0");
  write_file_atomically(at("config.json"), "{\"a\": ");
  expect_refused(here(), "config.json:1:7: this is not JSON");
  fs::remove(at("config.json"));
  expect_refused(here(), "this folder holds no model: there is no config.json");
}

TEST_F(BadFolder, TensorsAreRefusedBySentencesThatNameThem) {
  expect_refused(with_tensors([](auto& views) {
                   std::erase_if(views, [](const auto& v) { return v.name == "lm_head.weight"; });
                 }),
                 "there is no tensor 'lm_head.weight', which is 'readout.weight' of "
                 "models/llama.scheme");
  expect_refused(with_tensors([](auto& views) {
                   views.push_back(views[0]);
                   views.back().name = "model.extra.weight";
                 }),
                 "tensor 'model.extra.weight' is no parameter of models/llama.scheme");
  const auto named = [](auto& views, const std::string& name) -> SafetensorView& {
    return *std::find_if(views.begin(), views.end(), [&](auto& v) { return v.name == name; });
  };
  expect_refused(with_tensors([&](auto& views) {
                   named(views, "model.layers.0.self_attn.k_proj.weight").shape = {16, 8};
                 }),
                 "tensor 'model.layers.0.self_attn.k_proj.weight' is [16, 8], wanted [8, 16] by "
                 "config.json");
  expect_refused(
      with_tensors([&](auto& views) { named(views, "model.norm.weight").dtype = "I16"; }),
      "tensor 'model.norm.weight' is I16, wanted F32, F16 or BF16");
  fs::remove(at("model.safetensors"));
  const std::string none = refusal(here());
  EXPECT_NE(none.find("there are no weights here: wanted model.safetensors or "
                      "model.safetensors.index.json"),
            std::string::npos)
      << none;
}

TEST_F(BadFolder, IndexThatLiesIsRefused) {
  const auto only = [](const std::string& name) {
    return [=](std::vector<SafetensorView>& views) {
      std::erase_if(
          views, [&](const auto& v) { return (v.name == "lm_head.weight") != (name == "head"); });
    };
  };
  with_tensors(only("head"), "head.safetensors");
  with_tensors(only("body"), "body.safetensors");
  json map = json::object();
  {
    const SafetensorsFile body(at("body.safetensors"));
    for (const SafetensorView& v : body.tensors()) map[v.name] = "body.safetensors";
  }
  const auto index = [&](const json& weights) {
    write_file_atomically(at("model.safetensors.index.json"),
                          "{\"weight_map\": " + weights.dump() + "}");
    return here();
  };
  map["lm_head.weight"] = "head.safetensors";
  EXPECT_EQ(refusal(index(map)), "");
  map["lm_head.weight"] = "body.safetensors";
  expect_refused(index(map),
                 "tensor 'lm_head.weight' is said to be in body.safetensors, which "
                 "does not have it");
  map["lm_head.weight"] = "../head.safetensors";
  expect_refused(index(map), "wanted the name of a file in the same folder");
  map["lm_head.weight"] = "head.safetensors";
  with_tensors([](auto&) {}, "head.safetensors");
  const std::string twice = refusal(index(map));
  EXPECT_NE(twice.find("is in both body.safetensors and head.safetensors"), std::string::npos)
      << twice;
  expect_refused(index(json::array()), "wanted the files of tensors under \"weight_map\"");
}

TEST_F(BadFolder, TokenizerMustFitTheVocabulary) {
  EXPECT_EQ(refusal(with_config(json::object()), 41), "");
  EXPECT_EQ(refusal(with_config(json::object()), 30), "");  // rows that no token has
  const std::string text = refusal(with_config(json::object()), 42);
  EXPECT_NE(text.find("vocab=41 is too small: the tokenizer has 42 tokens"), std::string::npos)
      << text;
}

// ---- runs

TEST_F(RunOfFolder, BeginsWithTheFoldersWeights) {
  Trainer trainer(resolve_config({}, options("smollm", "")));
  EXPECT_EQ(trainer.model().context(), 16);
  EXPECT_EQ(trainer.model().settings().at("context"), 48);
  const auto weight = trainer.run().scheme().find({"block[1].q.weight"});
  const ModelFolder folder(family_folder("smollm"));
  const SafetensorView* view = folder.find("model.layers.1.self_attn.q_proj.weight");
  std::vector<float> wanted(16 * 16);
  read_floats(*view, 0, wanted);
  EXPECT_EQ(trainer.run().values(weight.value()), Numbers(wanted.begin(), wanted.end()));
}

// A config.json that says more than the weights have is refused before a plan is made for it.
TEST_F(RunOfFolder, IsRefusedBeforeMemoryIsTaken) {
  json config = json::parse(read_file(family_folder("smollm") / "config.json"));
  config["intermediate_size"] = int64_t{1} << 36;
  fs::create_directories(folder_ / "lies");
  write_file_atomically(folder_ / "lies" / "config.json", config.dump());
  fs::copy_file(family_folder("smollm") / "model.safetensors",
                folder_ / "lies" / "model.safetensors");
  json flags = options("smollm", "");
  flags["model"] = (folder_ / "lies").string();
  const std::string text = error_text([&] { train(flags); });
  EXPECT_TRUE(has(text, "gate_proj.weight' is [24, 16], wanted [68719476736, 16] by config.json"))
      << text;
  EXPECT_FALSE(fs::exists(folder_ / "run"));
}

// ---- a sequence shorter than the context

TEST(Seq, ShorterThanTheContextKeepsTheParameters) {
  const BoundModel whole(find_model("char"), {.batch = 2}),
      part(find_model("char"), {.batch = 2, .seq = 8});
  EXPECT_EQ(part.context(), 8);
  EXPECT_EQ(num_parameters(part.forward()), num_parameters(whole.forward()));
  const Scheme forward = part.forward();
  EXPECT_EQ(forward[*forward.find({"wpe.weight"})].type.dim(0), 64);
  EXPECT_EQ(forward[input_named(forward, "tokens")].type.dim(1), 8);
  const std::string text =
      error_text([] { BoundModel(find_model("char"), {.batch = 2, .seq = 65}); });
  EXPECT_EQ(text,
            "--seq 65 is longer than the model's context, 64; say at most that, or train a model "
            "of a longer --context");
}

}  // namespace
}  // namespace adjoint
