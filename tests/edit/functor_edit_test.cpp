// Functors' texts as JSON, and edits of them.
#include "edit/edited.h"
#include "edit/functor_json.h"

namespace adjoint {
namespace {

using Json = nlohmann::json;

const std::string kText = R"(# Thin matrices beside maps.
functor thin(rank = 4, last,   # how many
             share = 2*rank: number):
  law approximating
  let scale = share/rank when rank > 1, else 1   # never large
  require last <= L, else "at most {L}"
  # Nothing else is trained.
  object parameter -> frozen unless made or trained
  object x_l in chain -> kept when l mod 2 == 0, else recomputed
  morphism y = linear(x, W) where parameter(W), inside chain when l >= L - last
    thin = linear(x, rank, bias=no, name=a)
    -> y + scale*linear(thin, width(y), bias=no,
                        name=b, init=zeros)
)";

TEST(FunctorJson, SaysRulesAndWhereTheyStand) {
  const Json functor = functor_json(kText, "thin.functor");
  EXPECT_EQ(functor["name"], "thin");
  EXPECT_EQ(functor["law"], "approximating");
  ASSERT_EQ(functor["params"].size(), 3u);
  EXPECT_EQ(functor["params"][0]["default"], "4");
  EXPECT_TRUE(functor["params"][1]["default"].is_null());
  const auto text_at = [&](const Json& span) {
    return kText.substr(span["from"], span["to"].get<size_t>() - span["from"].get<size_t>());
  };
  EXPECT_EQ(text_at(functor["params"][2]["span"]), "share = 2*rank: number");
  EXPECT_EQ(text_at(functor["params"][2]["default_span"]), "2*rank");
  ASSERT_EQ(functor["rules"].size(), 6u);
  const Json& let = functor["rules"][1];
  EXPECT_EQ(let["kind"], "let");
  EXPECT_EQ(let["text"], "let scale = share/rank when rank > 1, else 1");
  EXPECT_EQ(let["choices"][0]["when"]["text"], "rank > 1");
  const Json& state = functor["rules"][4];
  EXPECT_EQ(state["kind"], "object");
  EXPECT_EQ(state["index"], 1);
  EXPECT_EQ(state["left"]["text"], "x_l in chain");
  EXPECT_EQ(state["right"]["text"], "kept when l mod 2 == 0, else recomputed");
  EXPECT_EQ(state["choices"][0]["values"][0]["text"], "kept");
  EXPECT_EQ(text_at(state["choices"][0]["when"]["span"]), "l mod 2 == 0");
  const Json& morphism = functor["rules"][5];
  EXPECT_EQ(morphism["op"], "linear");
  EXPECT_EQ(morphism["selector"], (Json{"parameter(W)", "inside chain"}));
  EXPECT_EQ(morphism["when"]["text"], "l >= L - last");
  EXPECT_EQ(morphism["statements"][0]["names"][0], "thin");
  EXPECT_EQ(text_at(morphism["becomes"]["span"]), morphism["right"]["text"].get<std::string>());
  EXPECT_EQ(text_at(morphism["span"]), morphism["text"].get<std::string>());
  EXPECT_TRUE(has(morphism["text"], "morphism y = linear(x, W)"));
  EXPECT_TRUE(has(morphism["text"], "init=zeros)"));
}

TEST(FunctorJson, SaysTheFunctorsOfAStack) {
  const std::string text = "functor light(rank = 4) = lora(rank) | -fuse\n  law approximating\n";
  const Json functor = functor_json(text, "light.functor");
  ASSERT_EQ(functor["stack"].size(), 2u);
  EXPECT_EQ(functor["stack"][0]["text"], "lora(rank)");
  EXPECT_EQ(functor["stack"][1]["off"], true);
  EXPECT_EQ(edited(text, {{"kind", "set"}, {"at", at(text, "lora(rank)")}, {"to", "lora(2*rank)"}},
                   "light.functor"),
            "functor light(rank = 4) = lora(2*rank) | -fuse\n  law approximating\n");
}

TEST(FunctorEdit, ChangesDefaultsNumbersAndRules) {
  const auto after = [](const Json& edit) { return edited(kText, edit, "thin.functor"); };
  EXPECT_EQ(after({{"kind", "set"}, {"param", "rank"}, {"to", "16"}}),
            with(kText, "rank = 4", "rank = 16"));
  EXPECT_EQ(after({{"kind", "set"}, {"param", "last"}, {"to", "2"}}),
            with(kText, "last,   #", "last = 2,   #"));
  EXPECT_EQ(after({{"kind", "set"}, {"at", at(kText, "l mod 2")}, {"to", "l mod 3"}}),
            with(kText, "l mod 2", "l mod 3"));
  EXPECT_EQ(after({{"kind", "set"}, {"at", at(kText, "rank > 1")}, {"to", "rank > 1 and L > 2"}}),
            with(kText, "rank > 1", "rank > 1 and L > 2"));
  EXPECT_EQ(after({{"kind", "set"}, {"rule", 3}, {"to", "object parameter -> frozen unless made"}}),
            with(kText, "frozen unless made or trained", "frozen unless made"));
  EXPECT_EQ(after({{"kind", "delete"}, {"rule", 4}}),
            with(kText, "  object x_l in chain -> kept when l mod 2 == 0, else recomputed\n", ""));
  EXPECT_EQ(after({{"kind", "insert"}, {"after", 3}, {"text", "object activation -> bf16"}}),
            with(kText, "made or trained\n", "made or trained\n  object activation -> bf16\n"));
  EXPECT_EQ(after({{"kind", "insert"}, {"after", 5}, {"text", "object activation -> bf16"}}),
            kText + "  object activation -> bf16\n");
  EXPECT_EQ(after({{"kind", "insert"}, {"after", -1}, {"text", "let k = 2"}}),
            with(kText, "number):\n", "number):\n  let k = 2\n"));
}

TEST(FunctorEdit, Refusals) {
  const auto said = [](const Json& edit) { return refusal(kText, edit, "thin.functor"); };
  EXPECT_EQ(said({{"kind", "set"}, {"param", "rang"}, {"to", "3"}}),
            "'thin' has no parameter 'rang'; did you mean 'rank'?");
  EXPECT_EQ(said({{"kind", "delete"}, {"rule", 6}}), "'thin' has lines 0 to 5, found 6");
  // The law goes with its line, and a functor without one is none.
  EXPECT_TRUE(has(said({{"kind", "delete"}, {"rule", 0}}), "wanted a line 'law exact'"));
  EXPECT_TRUE(has(said({{"kind", "insert"}, {"after", 0}, {"text", "object -> kept"}}),
                  "thin.functor:5:10: wanted what an object is"));
  EXPECT_TRUE(has(said({{"kind", "fold"}}), "there is no edit 'fold' of a functor"));
}

}  // namespace
}  // namespace adjoint
