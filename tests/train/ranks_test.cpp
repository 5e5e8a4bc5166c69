// Training on several ranks, threads of this process: what they train is what one rank trains, and
// what they save knows nothing of the mesh.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <sstream>

#include "comm/threads.h"
#include "train/train_folder.h"

namespace adjoint {
namespace {

class RankFolder : public TrainFolder {
 protected:
  // Batches of five samples, of which the last of two ranks has two.
  json ranked(const std::string& name, const std::string& stack, json more = json::object()) const {
    json all = options(name, {{"batch", 5}, {"threads", 1}, {"stack", stack}});
    all.update(more);
    return all;
  }
  static TrainResult train_on(int ranks, const json& flags) {
    const ResolvedConfig resolved = resolve_config({}, flags);
    TrainResult result;
    run_ranks(ranks, [&](const Communicator& world) {
      Trainer trainer(resolved, world);
      const TrainResult mine = trainer.train(std::atomic<bool>(false));
      if (world.rank() == 0) result = mine;
    });
    return result;
  }
  static std::string refusal(int ranks, const json& flags) {
    try {
      train_on(ranks, flags);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  }
  void expect_same_save(const std::string& a, const std::string& b) const {
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      EXPECT_EQ(read_file(out(a) / file), read_file(out(b) / file)) << file;
    }
  }
};

TEST_F(RankFolder, RanksTrainWhatOneRankTrains) {
  const TrainResult one = train(ranked("one", ""));
  for (const int ranks : {2, 3}) {
    const std::string n = std::to_string(ranks);
    const TrainResult many = train_on(ranks, ranked("many" + n, "data_parallel(" + n + ")"));
    EXPECT_EQ(many.step, one.step);
    EXPECT_NEAR(*many.loss, *one.loss, 1e-4) << ranks;
    EXPECT_NEAR(*many.val_loss, *one.val_loss, 1e-4) << ranks;
    EXPECT_EQ(fs::file_size(out("many" + n) / "model.safetensors"),
              fs::file_size(out("one") / "model.safetensors"));
  }
}

// With dropout a step does not split attention over heads, and keeps matrices behind it whole; the
// evaluation, which has none, must read them as they lie.
TEST_F(RankFolder, AnEvaluationReadsParametersAsTheStepHoldsThem) {
  const TrainResult one = train(ranked("one", ""));
  for (const char* stack : {"tensor_parallel(2)", "tensor_parallel(2) | zero(3) | data_parallel"}) {
    const int ranks = std::string(stack).find("zero") == std::string::npos ? 2 : 4;
    const TrainResult many = train_on(ranks, ranked("many", stack, {{"overwrite", true}}));
    EXPECT_NEAR(*many.loss, *one.loss, 1e-4) << stack;
    EXPECT_NEAR(*many.val_loss, *one.val_loss, 1e-4) << stack;
  }
}

// Initial weights, batches and dropout do not depend on the mesh: after no step at all but one the
// parameters are those of one rank, up to the order of sums.
TEST_F(RankFolder, TheWholeValidationPartIsEvaluated) {
  const json all = {{"eval_batches", 0}, {"steps", 1}};
  const TrainResult one = train(ranked("one", "", all));
  const TrainResult two = train_on(2, ranked("two", "data_parallel(2)", all));
  EXPECT_NEAR(*two.val_loss, *one.val_loss, 1e-5);
}

// Shards are put together when they are saved, bit for bit.
TEST_F(RankFolder, ZeroSavesTheSameBytes) {
  const TrainResult plain = train_on(2, ranked("plain", "data_parallel(2)"));
  for (const char* stage : {"1", "2", "3"}) {
    const TrainResult zero =
        train_on(2, ranked("zero", std::string("data_parallel(2) | zero(") + stage + ")",
                           {{"overwrite", true}, {"save_every", 3}}));
    EXPECT_EQ(zero.loss, plain.loss);
    EXPECT_EQ(zero.val_loss, plain.val_loss);
    expect_same_save("zero", "plain");
  }
}

TEST_F(RankFolder, ResumeGoesOnBitForBitAndUnderAnotherMesh) {
  const std::string stack = "data_parallel(2) | zero(3)";
  const TrainResult whole = train_on(2, ranked("whole", stack));
  train_on(2, ranked("parts", stack, {{"stop_after", 3}}));
  EXPECT_EQ(train_on(2, resume("parts")).loss, whole.loss);
  expect_same_save("parts", "whole");
  train_on(2, ranked("other", stack, {{"stop_after", 3}}));
  const TrainResult alone = train(resume("other", {{"stack", ""}, {"ranks", 1}}));
  EXPECT_EQ(alone.step, 7);
  EXPECT_NEAR(*alone.loss, *whole.loss, 1e-4);
  train_on(2, ranked("third", stack, {{"stop_after", 3}}));
  const TrainResult three = train_on(3, resume("third", {{"stack", "data_parallel(3)"}}));
  EXPECT_NEAR(*three.loss, *whole.loss, 1e-4);
}

// Stages, whatever their schedule, train and save what one rank does with as many parts; and a run
// goes on between any two meshes.
TEST_F(RankFolder, StagesTrainWhatOneRankTrainsInParts) {
  const TrainResult one = train(ranked("one", "accumulate(3, tied=apart)"));
  for (const char* schedule : {"1f1b", "gpipe", "zero_bubble"}) {
    const TrainResult two =
        train_on(2, ranked("two", std::string("pipeline(2, parts=3, schedule=") + schedule + ")",
                           {{"overwrite", true}, {"save_every", 3}}));
    EXPECT_EQ(two.loss, one.loss) << schedule;
    // Parts of an evaluation are those of the step, and one rank's are too.
    EXPECT_EQ(two.val_loss, one.val_loss) << schedule;
    expect_same_save("two", "one");
  }
  train_on(2, ranked("parts", "pipeline(2, parts=3)", {{"stop_after", 3}}));
  fs::copy(out("parts"), out("other"), fs::copy_options::recursive);
  fs::copy(out("parts"), out("third"), fs::copy_options::recursive);
  EXPECT_EQ(train_on(2, resume("parts")).loss, one.loss);
  expect_same_save("parts", "one");
  const json alone = {{"stack", "accumulate(3, tied=apart)"}, {"ranks", 1}};
  EXPECT_EQ(train(resume("other", alone)).loss, one.loss);
  expect_same_save("other", "one");
  const TrainResult many =
      train_on(4, resume("third", {{"stack", "data_parallel(2) | pipeline(2, parts=2)"}}));
  EXPECT_NEAR(*many.loss, *one.loss, 1e-4);
}

// Every stage takes its own parameters of a base, as numbers or as codes.
TEST_F(RankFolder, StagesBeginWithABase) {
  train(ranked("base", "", {{"steps", 2}, {"seed", 5}}));
  const json from = {{"init", out("base").string()}, {"overwrite", true}};
  for (const char* more :
       {"", " | lora(rank=2)", " | lora(rank=2) | quantize(int8, group=32)", " | codebook(k=8)"}) {
    const std::string beside = more;
    const TrainResult one = train(ranked("one", "accumulate(3, tied=apart)" + beside, from));
    const TrainResult two = train_on(2, ranked("two", "pipeline(2, parts=3)" + beside, from));
    EXPECT_EQ(two.loss, one.loss) << more;
    expect_same_save("two", "one");
  }
}

// The text of a user's schedule travels with the run.
TEST_F(RankFolder, AUsersScheduleIsKeptWithTheRun) {
  const std::string text =
      "schedule mine(stages = 2, parts = 3):\n"
      "  rank 0: F0 F1 F2 B0 B2 B1\n"
      "  rank 1: F0 F1 F2 B0 B2 B1\n";
  const fs::path own = out("") / "mine.schedule";
  write_file_atomically(own, text);
  const std::string stack = "pipeline(2, schedule=\"" + own.string() + "\", parts=3)";
  const TrainResult whole = train_on(2, ranked("whole", stack, {{"save_every", 3}, {"keep", 1}}));
  EXPECT_EQ(read_file(out("whole/step-7/schedules/mine.schedule")), text);
  train_on(2, ranked("run", stack, {{"stop_after", 3}}));
  for (const char* copy : {"changed", "again", "alone", "many"}) {
    fs::copy(out("run"), out(copy), fs::copy_options::recursive);
  }
  const auto notes_of = [&](const json& flags) {
    std::vector<std::string> notes;
    run_ranks(2, [&](const Communicator& world) {
      const Trainer trainer(resolve_config({}, flags), world);
      if (world.rank() == 0) notes = trainer.notes();
    });
    return notes;
  };
  EXPECT_TRUE(notes_of(resume("run")).empty());
  // Whatever has become of the original, the run's copy counts; unless the stack is said anew.
  write_file_atomically(own,
                        "schedule mine(stages = 2, parts = 3):\n"
                        "  rank 0: F0 F1 F2 B0 B1 B2\n"
                        "  rank 1: F0 F1 F2 B0 B1 B2\n");
  EXPECT_EQ(notes_of(resume("changed")),
            std::vector<std::string>{"'" + fs::absolute(own).string() +
                                     "' has changed; the run goes on with its copy, "
                                     "schedules/mine.schedule"});
  EXPECT_EQ(train_on(2, resume("changed")).loss, whole.loss);
  expect_same_save("changed", "whole");
  EXPECT_EQ(notes_of(resume("again", {{"stack", stack}})),
            std::vector<std::string>{"schedules/mine.schedule is another text from here on"});
  EXPECT_NEAR(*train_on(2, resume("again", {{"stack", stack}})).loss, *whole.loss, 1e-4);
  EXPECT_EQ(read_file(out("again/schedules/mine.schedule")), read_file(own));
  fs::remove(own);
  fs::rename(out("run"), out("moved"));
  EXPECT_EQ(train_on(2, resume("moved")).loss, whole.loss);
  expect_same_save("moved", "whole");
  const json alone = {{"stack", ""}, {"ranks", 1}};
  EXPECT_NEAR(*train(resume("alone", alone)).loss, *whole.loss, 1e-4);
  const std::string stages = "data_parallel(2) | pipeline(2, schedule=\"" +
                             out("many/schedules/mine.schedule").string() + "\", parts=3)";
  EXPECT_NEAR(*train_on(4, resume("many", {{"stack", stages}})).loss, *whole.loss, 1e-4);
  // Begun anew without it, the folder has it no longer.
  train(ranked("moved", "", {{"overwrite", true}}));
  EXPECT_FALSE(fs::exists(out("moved/schedules")));
}

// A schedule in a functor's own text could not travel with it.
TEST_F(RankFolder, AFunctorDoesNotNameASchedule) {
  const std::string own = (out("") / "own.functor").string();
  write_file_atomically(out("") / "mine.schedule",
                        "schedule mine(stages = 2, parts = 2):\n"
                        "  rank 0: F0 F1 B0 B1\n"
                        "  rank 1: F0 B0 F1 B1\n");
  write_file_atomically(own, "functor own = pipeline(2, schedule=\"" +
                                 (out("") / "mine.schedule").string() + "\")\n");
  EXPECT_NE(refusal(2, ranked("run", own)).find("which a run's folder could not keep"),
            std::string::npos);
  EXPECT_FALSE(fs::exists(out("run"))) << "nothing was written";
}

// A stage may train nothing, and then has no rate to set; a state that nothing of the step reads is
// kept where its parameter is, tied or not.
TEST_F(RankFolder, StagesThatTrainNothingAndStatesThatNobodyReads) {
  for (const char* more : {" | lora(rank=2, first=1)", " | lora(rank=2, last=1)", " | prompt(2)",
                           " | ema(0.9)", " | ema(0.9) | fp16"}) {
    const std::string beside = more;
    const json again = {{"overwrite", true}, {"batch", 6}};
    const TrainResult one = train(ranked("one", "accumulate(3, tied=apart)" + beside, again));
    const TrainResult two = train_on(2, ranked("two", "pipeline(2, parts=3)" + beside, again));
    EXPECT_EQ(two.loss, one.loss) << more;
    expect_same_save("two", "one");
  }
}

TEST_F(RankFolder, AMeshHasAsManyRanksAsTheRun) {
  const std::string two = "the mesh of the stack (data=2) has 2 ranks, and this run has ";
  EXPECT_EQ(error_of(ranked("run", "data_parallel(2)")),
            two + "1; run it on 2 (--ranks 2, or mpirun -n 2)");
  EXPECT_EQ(refusal(2, ranked("run", "")),
            "this run has 2 ranks, and the stack says no mesh, so every rank would do the same; "
            "add data_parallel to it");
  EXPECT_EQ(refusal(3, ranked("run", "data_parallel(2)")),
            two + "3; run it on 2 (--ranks 2, or mpirun -n 2), or say data_parallel(3)");
  EXPECT_FALSE(fs::exists(out("run"))) << "nothing was written";
}

// Cores that ranks shared are shared anew by another number of them; what was said is kept.
TEST_F(RankFolder, ThreadsThatNobodySaidAreThoseOfTheRanks) {
  const auto threads_of = [&](const json& flags) {
    return resolve_config({}, flags).config.threads;
  };
  json shared = ranked("shared", "data_parallel", {{"ranks", 2}, {"stop_after", 2}});
  shared.erase("threads");
  ResolvedConfig resolved = resolve_config({}, shared);
  EXPECT_EQ(resolved.config.threads, 0);
  resolved.config.threads = 1;  // of two cores, as the command line shares them
  run_ranks(2, [&](const Communicator& world) {
    Trainer(resolved, world).train(std::atomic<bool>(false));
  });
  EXPECT_EQ(threads_of(resume("shared")), 1) << "as before, so that bits stay";
  EXPECT_EQ(threads_of(resume("shared", {{"ranks", 1}, {"stack", ""}})), 0);
  EXPECT_EQ(threads_of(resume("shared", {{"ranks", 1}, {"stack", ""}, {"threads", 3}})), 3);
  train_on(2, ranked("said", "data_parallel", {{"ranks", 2}, {"stop_after", 2}}));
  EXPECT_EQ(threads_of(resume("said", {{"ranks", 1}, {"stack", ""}})), 1);
}

// What needs no data is refused before data are tokenized.
TEST_F(RankFolder, AMistypedStackIsToldBeforeAnythingIsWritten) {
  for (const json& wrong : {json{{"stack", "bf61"}}, json{{"optimizer", "adamww"}}}) {
    json flags = ranked("run", "", {{"tokenizer", "byte"}, {"cache", out("cache").string()}});
    flags.update(wrong);
    EXPECT_NE(error_of(flags).find("did you mean"), std::string::npos);
    EXPECT_FALSE(fs::exists(out("run")));
    EXPECT_FALSE(fs::exists(out("cache")));
  }
}

// Two functors of a user's own say a mesh of two axes: samples lie over data, and nothing over
// rows.
std::string with_rows(const fs::path& folder, int rows) {
  write_file_atomically(folder / "rows.functor",
                        "functor rows(n):\n  law reassociating\n  mesh rows = n\n"
                        "  object optimizer_state -> sharded over rows\n");
  return (folder / "rows.functor").string() + "(" + std::to_string(rows) + ")";
}

TEST_F(RankFolder, DataParallelTakesTheRanksThatAreLeft) {
  const TrainResult said = train_on(2, ranked("said", "data_parallel(2)"));
  const TrainResult left = train_on(2, ranked("left", "data_parallel"));
  EXPECT_EQ(left.loss, said.loss);
  expect_same_save("left", "said");
  EXPECT_EQ(train(ranked("alone", "data_parallel")).loss, train(ranked("one", "")).loss);
}

TEST_F(RankFolder, NobodyIsLeftWhereTheMeshDoesNotDivideTheRanks) {
  const std::string rows = with_rows(out(""), 2);
  EXPECT_EQ(refusal(3, ranked("run", "data_parallel | " + rows)),
            "data_parallel: 3 ranks cannot be shared by the rest of the mesh (rows=2); the nearest "
            "that can are 2 and 4");
}

// Pieces that lie over one axis of the mesh, and are the same along another, are each written once.
TEST_F(RankFolder, AMeshOfTwoAxesSavesWhatOneAxisSaves) {
  const std::string stack = "data_parallel | " + with_rows(out(""), 2);
  const TrainResult four = train_on(4, ranked("four", stack, {{"save_every", 2}, {"keep", 2}}));
  const TrainResult one = train(ranked("one", ""));
  EXPECT_NEAR(*four.loss, *one.loss, 1e-4);
  EXPECT_EQ(train_on(4, ranked("again", stack)).loss, four.loss);
  expect_same_save("again", "four");
  expect_same_save("four/step-7", "four");
}

// A functor of a user's own that lays the inputs over an axis of its own.
std::string laid(const fs::path& folder, const std::string& axis, const std::string& along, int n) {
  const fs::path file = folder / (axis + ".functor");
  write_file_atomically(file, "functor " + axis + "(n):\n  law reassociating\n  mesh " + axis +
                                  " = n\n  object input -> sharded along " + along + " over " +
                                  axis + "\n");
  return file.string() + "(" + std::to_string(n) + ")";
}

// Whatever lies where, each rank trains on its own share of what one rank trains on.
TEST_F(RankFolder, RanksTrainOnTheirShareOfEveryInput) {
  const json three = {{"steps", 3}, {"batch", 8}, {"lr", 0.01}, {"warmup", 0}, {"eval_batches", 0}};
  const TrainResult one = train(ranked("one", "", three));
  const std::string samples = laid(out(""), "replica", "samples", 2),
                    positions = laid(out(""), "slices", "positions", 2);
  const std::pair<int, std::string> stacks[] = {{2, samples},
                                                {4, "data_parallel(2) | " + samples},
                                                {2, positions},
                                                {4, samples + " | " + positions},
                                                {4, "data_parallel(2) | " + positions},
                                                {4, "pipeline(2, parts=2) | " + samples}};
  for (const auto& [ranks, stack] : stacks) {
    json flags = ranked("many", stack, three);
    flags["overwrite"] = true;
    const TrainResult many = train_on(ranks, flags);
    EXPECT_NEAR(*many.loss, *one.loss, 2e-5) << stack;
    EXPECT_NEAR(*many.val_loss, *one.val_loss, 2e-5) << stack;
  }
}

// Random meshes of users' functors beside ours, uneven shares and parts among them: each is refused
// before anything is written, or trains what one rank trains.
TEST_F(RankFolder, RandomMeshesOfUsersTrainWhatOneRankTrains) {
  std::mt19937 random(33);
  const auto below = [&](size_t n) { return static_cast<int>(random() % n); };
  int trained = 0;
  for (int draw = 0; draw < 12; ++draw) {
    const json sizes = {{"batch", 5 + below(4)},
                        {"context", 12 + 4 * below(2)},
                        {"steps", 3},
                        {"lr", 0.01},
                        {"warmup", 0},
                        {"eval_batches", 0},
                        {"overwrite", true}};
    std::vector<std::string> items;
    int ranks = 1;
    const auto add = [&](int n, const std::string& item) {
      if (ranks * n > 8) return;
      ranks *= n;
      items.push_back(item);
    };
    for (const char* axis : {"replica", "second"}) {
      if (below(3) == 0) continue;
      const int n = 2 + below(2);
      add(n, laid(out(""), axis, below(3) > 0 ? "samples" : "positions", n));
    }
    if (below(2) == 0) add(2, "data_parallel(2)");
    if (items.empty()) add(2, "data_parallel(2)");
    if (below(3) == 0) add(2, "tensor_parallel(2)");
    if (items.back() == "data_parallel(2)")
      items.push_back("zero(" + std::to_string(1 + below(3)) + ")");
    if (below(3) == 0) items.emplace_back("accumulate(2)");
    std::string stack;
    for (const std::string& item : items) stack += (stack.empty() ? "" : " | ") + item;
    const TrainResult one = train(ranked("one", "", sizes));
    try {
      const TrainResult many = train_on(ranks, ranked("many", stack, sizes));
      EXPECT_NEAR(*many.loss, *one.loss, 5e-5) << stack << sizes;
      EXPECT_NEAR(*many.val_loss, *one.val_loss, 5e-5) << stack << sizes;
      ++trained;
    } catch (const Error& e) {
      EXPECT_FALSE(fs::exists(out("many"))) << stack << ": " << e.what();
    }
    fs::remove_all(out("many"));
  }
  EXPECT_GE(trained, 8);
}

// Dropout is on: masks, batches and initial weights are those of any mesh.
TEST_F(RankFolder, ARunGoesFromFourRanksToTwoToOne) {
  const TrainResult whole = train(ranked("whole", ""));
  train_on(4, ranked("run", "data_parallel | zero(3)", {{"stop_after", 2}}));
  EXPECT_EQ(train_on(2, resume("run", {{"stop_after", 4}, {"ranks", 2}})).step, 4);
  EXPECT_EQ(train_on(2, resume("run", {{"stop_after", 6}, {"stack", "data_parallel(2)"}})).step, 6);
  const TrainResult last = train(resume("run", {{"stack", ""}, {"ranks", 1}}));
  EXPECT_NEAR(*last.loss, *whole.loss, 1e-4);
  EXPECT_NEAR(*last.val_loss, *whole.val_loss, 1e-4);
}

TEST_F(RankFolder, NormsSpikesAndOtherBeginningsWorkOnRanks) {
  const json more = {{"norms", 1}, {"check_replicas", 2}};
  const std::string stack = "data_parallel | zero(3)";
  train(ranked("one", "", {{"norms", 1}}));
  train_on(2, ranked("two", stack, more));
  const auto norms = [&](const std::string& run) {
    const std::string lines = read_file(out(run) / "metrics.jsonl");
    return json::parse(lines.substr(0, lines.find('\n')));
  };
  for (const char* kind : {"weight_norms", "grad_norms"}) {
    const json one = norms("one")[kind], two = norms("two")[kind];
    ASSERT_EQ(one.size(), two.size()) << two.dump();
    for (const auto& [role, norm] : one.items()) {
      EXPECT_NEAR(two[role].get<double>(), norm.get<double>(), 1e-4 * norm.get<double>()) << role;
    }
  }
  // Repeated: the same bits.
  train_on(2, {{"repeat", out("two").string()}, {"out", out("twice").string()}});
  expect_same_save("twice", "two");
  // From another run's parameters, which ranks hold in pieces.
  fs::rename(out("one"), out("base"));
  const json tune = tuned("tuned", "lora(rank=2)");
  const TrainResult alone = train(tune);
  json of_ranks = tuned("of_ranks", "lora(rank=2) | " + stack);
  of_ranks["batch"] = 2;
  EXPECT_NEAR(*train_on(2, of_ranks).loss, *alone.loss, 1e-3);
}

// Whatever --fit lets stages recompute, they train the same.
TEST_F(RankFolder, StagesFitABudget) {
  const TrainResult plain = train_on(2, ranked("plain", "pipeline(2, parts=3)"));
  const std::string told = refusal(2, ranked("none", "pipeline(2, parts=3)", {{"fit", "10kB"}}));
  EXPECT_NE(told.find("--fit 10kB: no choice needs so little"), std::string::npos) << told;
  EXPECT_FALSE(fs::exists(out("none"))) << "nothing was written";
  // A little more than the least that it names, for the evaluation beside it.
  const std::string after = "the smallest that --fit can choose is ";
  std::string bytes = told.substr(told.find(after) + after.size());
  bytes = bytes.substr(0, bytes.find(' '));
  std::erase(bytes, ',');
  const std::string budget = std::to_string(std::stoll(bytes) * 21 / 20);
  const TrainResult small = train_on(2, ranked("small", "pipeline(2, parts=3)", {{"fit", budget}}));
  EXPECT_EQ(small.loss, plain.loss);
  expect_same_save("small", "plain");
  const json saved = json::parse(read_file(out("small") / "run.json"));
  EXPECT_NE(saved["options"]["stack"], "pipeline(2, parts=3)") << "something was chosen";
}

// A search that ends after some seconds finds other stacks on other ranks: what the first one finds
// is everybody's, and so is its refusal.
TEST_F(RankFolder, AgreeOnWhatASearchFindsInTime) {
  const json cut = {{"fit", "200MB"}, {"fit_seconds", 1e-9}};
  train_on(3, ranked("cut", "data_parallel(3)", cut));
  const json saved = json::parse(read_file(out("cut") / "run.json"));
  EXPECT_EQ(saved["options"]["stack"], "data_parallel(3)") << "the first plan that was made fits";
  const json small = {{"fit", "10kB"}, {"fit_seconds", 1e-9}};
  const std::string told = refusal(3, ranked("none", "data_parallel(3)", small));
  EXPECT_NE(told.find("was found in 1e-09 s"), std::string::npos) << told;
  EXPECT_FALSE(fs::exists(out("none"))) << "nothing was written";
}

// Every rank has the norms of all stages: those of gradients with one rank's bits.
TEST_F(RankFolder, NormsOfStagesAreThoseOfOneRank) {
  train(ranked("one", "accumulate(3, tied=apart)", {{"norms", 2}}));
  train_on(2, ranked("two", "pipeline(2, parts=3)", {{"norms", 2}, {"check_replicas", 2}}));
  const auto lines = [&](const std::string& run) {
    std::vector<json> all;
    std::istringstream text(read_file(out(run) / "metrics.jsonl"));
    for (std::string line; std::getline(text, line);) {
      if (json parsed = json::parse(line); parsed.contains("grad_norms")) all.push_back(parsed);
    }
    return all;
  };
  const std::vector<json> one = lines("one"), two = lines("two");
  ASSERT_GE(one.size(), 3U);
  ASSERT_EQ(one.size(), two.size());
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i]["grad_norms"], two[i]["grad_norms"]);
    ASSERT_EQ(one[i]["weight_norms"].size(), two[i]["weight_norms"].size());
    for (const auto& [role, norm] : one[i]["weight_norms"].items()) {
      EXPECT_NEAR(two[i]["weight_norms"][role].get<double>(), norm.get<double>(),
                  1e-5 * norm.get<double>())
          << role;
    }
  }
}

TEST_F(RankFolder, GoingBackOfASpikeIsTheSameOnRanks) {
  const json back = {{"spike", 1.0001}, {"on_spike", "back"}, {"save_every", 1}};
  std::string one, two;
  try {
    one = std::to_string(train(ranked("one", "", back)).step);
  } catch (const Error& e) {
    one = e.what();
  }
  try {
    two = std::to_string(train_on(2, ranked("two", "data_parallel", back)).step);
  } catch (const Error& e) {
    two = e.what();
  }
  EXPECT_EQ(one.substr(0, 12), two.substr(0, 12));
  EXPECT_EQ(fs::exists(out("one") / "spikes.jsonl"), fs::exists(out("two") / "spikes.jsonl"));
}

TEST_F(RankFolder, AReplicaThatDiffersIsNamed) {
  const auto said = [&](int ranks, const std::string& stack, int spoiled, const char* parameter) {
    const ResolvedConfig resolved =
        resolve_config({}, ranked("run", stack, {{"check_replicas", 2}, {"overwrite", true}}));
    try {
      run_ranks(ranks, [&](const Communicator& world) {
        Trainer trainer(resolved, world);
        const Scheme& scheme = trainer.run().scheme();
        if (world.rank() == spoiled) {
          const Value v = scheme.find({parameter, ""}).value();
          static_cast<float*>(trainer.run().data(v))[5] += 1;
        }
        trainer.train(std::atomic<bool>(false));
      });
    } catch (const MachineError& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  const auto differs = [](const std::string& parameter, const std::string& ranks) {
    return "--check-replicas: after step 2 '" + parameter + "' of " + ranks +
           ", and all of them should hold the same bits";
  };
  EXPECT_EQ(said(3, "data_parallel", 1, "block[1].qkv.weight"),
            differs("block[1].qkv.weight", "rank 1 is not that of ranks 0, 2"));
  // Stages hold different parameters, and the tied table lies on the first and the last.
  const std::string stages = "data_parallel(2) | pipeline(2, parts=2)";
  EXPECT_EQ(said(4, stages, 3, "block[1].qkv.weight"),
            differs("block[1].qkv.weight", "rank 3 is not that of rank 1"));
  EXPECT_EQ(said(4, stages, 2, "wte.weight"),
            differs("wte.weight", "rank 2 is not that of ranks 0, 1, 3"));
}

}  // namespace
}  // namespace adjoint
