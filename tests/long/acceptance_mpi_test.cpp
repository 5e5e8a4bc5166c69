// T1, T4, T8, T10 and T11 of what goes wrong elsewhere, by the binary under mpirun: ranks that are
// processes train what one process trains, up to the order of sums, and to the byte what ranks
// train that are threads (acceptance_ranks_test.cpp holds those to their laws).
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/mpi_folder.h"

namespace adjoint {
namespace {

using nlohmann::json;

struct Told {
  double loss = 0, norm = 0;
};

class AcceptanceOnMpi : public MpiFolder {
 protected:
  void SetUp() override {
    MpiFolder::SetUp();
    // Samples of many lengths, each of which begins with tokens that have no target.
    std::ofstream lines(folder_ / "asked.jsonl");
    for (int i = 0; i < 120; ++i) {
      lines << json{{"prompt", std::string(1 + i % 5, 'a' + i % 7)},
                    {"completion", std::string(1 + i * 5 % 11, 'k' + i % 9)}}
                   .dump()
            << "\n";
    }
  }

  std::string asked(const std::string& out, const std::string& stack) const {
    return train(out, stack, (folder_ / "asked.jsonl").string()) + kMore + "--packing padded ";
  }
  std::string usual(const std::string& out, const std::string& stack) const {
    return train(out, stack) + kMore;
  }
  static std::string with(std::string command, const std::string& usually,
                          const std::string& instead) {
    return command.replace(command.find(usually), usually.size(), instead);
  }
  static std::string of(const std::string& samples, const std::string& command) {
    return with(command, "--batch 4", "--batch " + samples);
  }
  void run_here(const std::string& command) const {
    const Outcome job = run(command, "OMP_WAIT_POLICY=passive");
    ASSERT_EQ(job.code, 0) << command << "\n" << job.text;
  }
  void run_on(int ranks, const std::string& command) const {
    const Outcome job = run(command, mpirun("-n " + std::to_string(ranks)));
    ASSERT_EQ(job.code, 0) << command << "\n" << job.text;
  }

  std::vector<Told> told(const std::string& out) const {
    std::ifstream file(folder_ / out / "metrics.jsonl");
    std::vector<Told> steps;
    for (std::string line; std::getline(file, line);) {
      const json said = json::parse(line);
      if (said.contains("loss") && said.contains("grad_norm")) {
        steps.push_back({said["loss"], said["grad_norm"]});
      }
    }
    return steps;
  }
  // Every step's loss and norm are those of the other run, from this step on.
  void expect_same_steps(const std::string& out, const std::string& other, double share = 2e-5,
                         size_t wanted = 4) const {
    const std::vector<Told> a = told(out), b = told(other);
    ASSERT_EQ(a.size(), wanted);
    ASSERT_EQ(b.size(), wanted);
    for (size_t i = 0; i < wanted; ++i) {
      EXPECT_NEAR(a[i].loss, b[i].loss, share * std::abs(b[i].loss)) << out << ", step " << i + 1;
      EXPECT_NEAR(a[i].norm, b[i].norm, 10 * share * b[i].norm) << out << ", step " << i + 1;
    }
  }

  static constexpr const char* kMore = "--threads 1 --log-every 1 ";
};

TEST_F(AcceptanceOnMpi, QuickRaggedCountsUnderOneSplit) {
  run_here(of("5", asked("one", "")));
  run_on(2, of("5", asked("two", "accumulate(2) | data_parallel")));
  expect_same_steps("two", "one");
}

TEST_F(AcceptanceOnMpi, T1_RaggedCountsGiveTheSameStepsUnderEverySplit) {
  for (const std::string batch : {"12", "13"}) {
    run_here(of(batch, asked("plain" + batch, "")));
    for (const std::string parts : {"1", "2", "4"}) {
      for (const auto& [ranks, mesh] :
           {std::pair{2, "data_parallel"}, std::pair{3, "data_parallel"},
            std::pair{2, "tensor_parallel(2)"}, std::pair{4, "data_parallel | tensor_parallel(2)"},
            std::pair{2, "pipeline(2, parts=2)"},
            std::pair{4, "pipeline(2, parts=1, schedule=zero_bubble) | data_parallel"}}) {
        const std::string stack = "accumulate(" + parts + ") | " + mesh;
        const std::string out =
            "out" + batch + "_" + parts + "_" + std::to_string(ranks) + mesh[0] + mesh[1];
        SCOPED_TRACE(batch + " samples, " + std::to_string(ranks) + " ranks, " + stack);
        run_on(ranks, of(batch, asked(out, stack)));
        expect_same_steps(out, "plain" + batch);
      }
    }
  }
}

// Recomputation and fusion change no bit beside data_parallel.
TEST_F(AcceptanceOnMpi, T4_RecomputationDataParallelAndFusionAtHidden128And256) {
  for (const std::string hidden : {"128", "256"}) {
    const auto at = [&](const std::string& name) { return name + hidden; };
    const auto wide = [&](const std::string& name, const std::string& stack) {
      return with(usual(at(name), stack), "hidden=32", "hidden=" + hidden);
    };
    run_here(wide("plain", ""));
    for (const std::string mesh : {"data_parallel(2)", "tensor_parallel(2)"}) {
      const std::string name = mesh.substr(0, 4);
      run_on(2, wide(name, mesh));
      expect_same_steps(at(name), at("plain"));
      run_on(2, wide(name + "_again", mesh + " | checkpoint(block)"));
      expect_same_save(at(name + "_again"), at(name));
      run_on(2, wide(name + "_apart", mesh + " | checkpoint(block) | -fuse"));
      expect_same_save(at(name + "_apart"), at(name));
    }
  }
}

TEST_F(AcceptanceOnMpi, T8_TiedTablesStayTied) {
  const std::string decay = "--weight-decay 5 ";
  run_here(usual("plain", "") + decay);
  const auto names = [&](const std::string& out) {
    std::vector<std::string> all;
    const std::string file = read_file(folder_ / out / "model.safetensors");
    uint64_t length = 0;
    std::memcpy(&length, file.data(), sizeof length);
    const json header = json::parse(file.substr(sizeof length, length));
    for (const auto& [name, entry] : header.items()) all.push_back(name);
    return all;
  };
  int number = 0;
  for (const auto& [ranks, stack] :
       {std::pair{2, "data_parallel | zero(3)"}, std::pair{3, "data_parallel | zero(3)"},
        std::pair{2, "tensor_parallel(2)"},
        std::pair{4, "data_parallel | zero(3) | tensor_parallel(2)"},
        std::pair{2, "pipeline(2, parts=2)"},
        std::pair{4, "data_parallel | zero(3) | pipeline(2, parts=2)"}}) {
    SCOPED_TRACE(stack);
    const std::string out = "run" + std::to_string(++number);
    run_on(ranks, usual(out, stack) + decay);
    EXPECT_EQ(names(out), names("plain"));
    expect_same_steps(out, "plain");
  }
}

// Stopped under zero(3) on four ranks: the same bytes as if nothing had happened where four ranks
// go on, and the same losses on another mesh, or alone.
TEST_F(AcceptanceOnMpi, T10_StopsUnderZeroAndGoesOnUnderAnotherMesh) {
  const std::string stack = "data_parallel | zero(3)";
  const auto resume = [&](const std::string& out) {
    return "train --resume --out " + (folder_ / out).string() + " ";
  };
  run_on(4, usual("whole", stack));
  for (const std::string out : {"same", "tensors", "two", "alone", "stages", "all"}) {
    run_on(4, usual(out, stack) + "--stop-after 2 ");
    if (out == "same") run_on(4, resume(out));
    if (out == "tensors") run_on(4, resume(out) + "--stack 'data_parallel | tensor_parallel(2)' ");
    if (out == "two") run_on(2, resume(out));
    if (out == "alone") run_here(resume(out) + "--stack '' --ranks 1 ");
    if (out == "stages") run_on(2, resume(out) + "--stack 'pipeline(2, parts=2)' ");
    if (out == "all") {
      run_on(4, resume(out) + "--stack 'pipeline(2, parts=2) | tensor_parallel(2)' ");
    }
    SCOPED_TRACE(out);
    expect_same_steps(out, "whole");
  }
  expect_same_save("same", "whole");
}

// The other way round: stopped under stages.
TEST_F(AcceptanceOnMpi, T10_StopsUnderStagesAndGoesOnUnderAnotherMesh) {
  const std::string stack = "data_parallel | pipeline(2, parts=2, schedule=zero_bubble)";
  const auto resume = [&](const std::string& out) {
    return "train --resume --out " + (folder_ / out).string() + " ";
  };
  run_on(4, usual("whole", stack));
  for (const std::string out : {"same", "zero", "schedule", "alone"}) {
    run_on(4, usual(out, stack) + "--stop-after 2 ");
    if (out == "same") run_on(4, resume(out));
    if (out == "zero") run_on(4, resume(out) + "--stack 'data_parallel | zero(3)' ");
    if (out == "schedule") {
      run_on(4, resume(out) + "--stack 'data_parallel | pipeline(2, parts=2, schedule=gpipe)' ");
    }
    if (out == "alone") run_here(resume(out) + "--stack '' --ranks 1 ");
    SCOPED_TRACE(out);
    expect_same_steps(out, "whole");
  }
  expect_same_save("same", "whole");
  expect_same_save("schedule", "whole");  // the same parts in the same order
}

TEST_F(AcceptanceOnMpi, T11_AdaptersAndCodesWithEverySharding) {
  int number = 0;
  for (const std::string rest :
       {"lora(rank=4)", "quantize(int8, group=8) | lora(rank=4) | checkpoint(every=1)",
        "qlora(rank=4, group=8) | accumulate(2)"}) {
    const std::string plain = "plain" + std::to_string(++number);
    run_here(of("8", usual(plain, rest)));
    // qlora computes in bf16, and another order of sums is another rounding there.
    const double share = rest.starts_with("qlora") ? 2e-3 : 2e-5;
    for (const auto& [ranks, sharding] :
         {std::pair{2, "data_parallel"}, std::pair{2, "data_parallel | zero(1)"},
          std::pair{2, "data_parallel | zero(2)"}, std::pair{3, "data_parallel | zero(3)"},
          std::pair{2, "tensor_parallel(2)"}, std::pair{2, "tensor_parallel(2, sequence=yes)"},
          std::pair{4, "data_parallel | tensor_parallel(2) | zero(3)"},
          std::pair{2, "pipeline(2, parts=2)"},
          std::pair{4, "data_parallel | zero(2) | pipeline(2, parts=2)"},
          std::pair{4, "data_parallel | zero(3) | pipeline(2, parts=2)"}}) {
      const std::string stack = std::string(sharding) + " | " + rest;
      SCOPED_TRACE(stack);
      const std::string out = "run" + std::to_string(++number);
      run_on(ranks, of("8", usual(out, stack)));
      expect_same_steps(out, plain, share);
      run_here(of("8", usual(out + "_threads", stack)) + "--ranks " + std::to_string(ranks));
      expect_same_save(out + "_threads", out);
    }
  }
}

}  // namespace
}  // namespace adjoint
