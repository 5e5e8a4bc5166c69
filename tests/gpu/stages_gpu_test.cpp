// Stages of a pipeline on one GPU, ranks that are threads of this process: messages between them,
// the laws that stages keep on CPUs, and runs that train and save what one rank trains in as many
// parts. Skipped where there is no GPU.
#include <gtest/gtest.h>

#include <algorithm>

#include "comm/gpu_group.h"
#include "comm/gpu_reduction.h"
#include "comm/seat.h"
#include "comm/terms.h"
#include "device/gpu.h"
#include "device/parallel.h"
#include "functors/pipeline.h"
#include "functors/stage_step.h"
#include "kernels/backend.h"
#include "laws/judge.h"
#include "models/small_models.h"
#include "run/machine.h"
#include "run/random_steps.h"
#include "train/train_folder.h"
#ifdef ADJOINT_HAS_CUDA
#include <cuda_runtime_api.h>
#endif

namespace adjoint {
namespace {

class GpuStages : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "no GPU that this binary can use";
  }
};

// One call of `send` or `receive` between two ranks, with memory and a workspace of its own.
class MessageCall {
 public:
  MessageCall(bool sends, Communicator& peers, GpuStream& stream, int64_t numbers, int64_t count)
      : call_{.op = sends ? "send" : "receive",
              .inputs = {},
              .attrs = {{"mesh", std::string("stage")},
                        {"ranks", int64_t{peers.size()}},
                        {sends ? "to" : "from", int64_t{1 - peers.rank()}}}} {
    const Type type{Dtype::kF32, {{"n", numbers}}};
    KernelTerms terms;
    terms.target = Target::kCuda;
    KernelCall k(call_, terms);
    Pointers at;
    for (int64_t i = 0; i < count; ++i) data.emplace_back(type.bytes(), Memory::kGpu);
    if (sends) {
      call_.inputs.assign(count, type);
      k.in_strides.assign(count, dense_strides(type));
      k.outputs = {{Dtype::kF32, {}}};
      token_ = Buffer({4}, Memory::kGpu);
      at.out = {token_.data()};
      for (const Buffer& each : data) at.in.push_back(each.data());
    } else {
      call_.attrs["shape"] = std::vector<int64_t>{numbers};
      call_.attrs["count"] = count;
      k.outputs.assign(count, type);
      for (const Buffer& each : data) at.out.push_back(each.data());
    }
    for (const Type& out : k.outputs) k.out_strides.push_back(dense_strides(out));
    const Bytes room = workspace_bytes(k);
    EXPECT_EQ(room.count > 0, count > 1);
    workspace_ = Buffer({std::max<int64_t>(room.count, 1)}, Memory::kGpu);
    at.workspace = workspace_.data();
    at.stream = stream.handle();
    at.peers = &peers;
    at.completion = &end;
    begin = prepare(k, at);
  }
  MessageCall(const MessageCall&) = delete;
  MessageCall& operator=(const MessageCall&) = delete;

  std::vector<Buffer> data;
  Launch begin, end;

 private:
  OpCall call_;
  Buffer token_, workspace_;
};

std::vector<std::byte> on_host(const Buffer& from, GpuStream& stream) {
  std::vector<std::byte> host(from.size().count);
  stream.copy(host.data(), from.data(), from.size());
  stream.synchronize();
  return host;
}

// Both ranks begin all their sends before they receive anything, as neighbours in 1f1b do. What is
// sent is still being made when a send begins, and what is received lands where the stream still
// writes something else.
void cross_messages(Communicator& peers) {
  struct Sizes {
    int64_t numbers, count;
  };
  const Sizes sizes[] = {{16 << 20, 1}, {1000, 1}, {1, 5}, {1000, 1}, {3 << 20, 1}};
  GpuStream stream;
  const Buffer busy({1 << 30}, Memory::kGpu);  // fills of it keep the stream behind the host
  std::vector<std::unique_ptr<MessageCall>> sent, received;
  for (const Sizes& s : sizes) {
    sent.push_back(std::make_unique<MessageCall>(true, peers, stream, s.numbers, s.count));
    received.push_back(std::make_unique<MessageCall>(false, peers, stream, s.numbers, s.count));
  }
  for (int round = 0; round < 3; ++round) {
    const auto byte_of = [&](int rank, size_t message, size_t object) {
      return static_cast<std::byte>(100 * rank + 30 * round + 5 * message + object);
    };
    for (size_t i = 0; i < sent.size(); ++i) {
      for (size_t o = 0; o < sent[i]->data.size(); ++o) {
        const Buffer& to = sent[i]->data[o];
        stream.fill(busy.data(), std::byte{0xee}, busy.size());
        stream.fill(to.data(), byte_of(peers.rank(), i, o), to.size());
      }
      sent[i]->begin();
    }
    for (const auto& message : received) {
      stream.fill(busy.data(), std::byte{0xff}, busy.size());
      for (const Buffer& to : message->data) stream.fill(to.data(), std::byte{0xff}, to.size());
      message->begin();
    }
    // In any order.
    for (size_t i = received.size(); i-- > 0;) received[i]->end();
    for (const auto& message : sent) message->end();
    for (size_t i = 0; i < received.size(); ++i) {
      for (size_t o = 0; o < received[i]->data.size(); ++o) {
        const auto found = on_host(received[i]->data[o], stream);
        const std::byte wanted = byte_of(1 - peers.rank(), i, o);
        EXPECT_EQ(std::count(found.begin(), found.end(), wanted),
                  static_cast<int64_t>(found.size()))
            << "round " << round << " message " << i << " object " << o;
      }
    }
  }
}

TEST_F(GpuStages, MessagesCrossAndMeetInOrder) {
  run_ranks(2, [](Communicator world) { cross_messages(world); }, {.memory = gpu_memory()});
}

#ifdef ADJOINT_HAS_CUDA
// By NCCL's lanes, which want two GPUs: a thread of this process for each.
TEST_F(GpuStages, MessagesBetweenTwoGpusCrossAndMeetInOrder) {
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus < 2) GTEST_SKIP() << "one GPU";
  run_ranks(2, [](const Communicator& world) {
    ASSERT_EQ(cudaSetDevice(world.rank()), cudaSuccess);
    Seat seat(world, {{.name = "stage", .size = 2}});
    seat.open_gpus(false);
    cross_messages(seat.along("stage"));
  });
}
#endif

// What a process with a GPU of its own opens. One GPU allows one rank, which has no lanes.
TEST_F(GpuStages, LanesOfMessagesAreOpenedAlongStages) {
  run_ranks(1, [&](const Communicator& world) {
    Seat seat(world, {{.name = "data", .size = 1}, {.name = "stage", .size = 1}});
    seat.open_gpus(false);
    ASSERT_TRUE(seat.gpus_are_open());
    seat.along("stage").gpus()->messages();
    seat.along("stage").gpus()->check();
  });
}

Subject subject_of(const std::string& model, int64_t batch, int layers) {
  StepOptions options;
  options.eps = 1e-2;  // as in verify
  options.target = Target::kCuda;
  options.deterministic = true;
  nlohmann::json settings = {{"layers", layers}, {"vocab", 37}, {"dropout", 0.1}};
  if (model == "char") settings.update({{"hidden", 32}, {"heads", 2}});
  const BoundModel bound(find_model(model), {.batch = batch, .context = 8, .settings = settings});
  return {.forward = bound.forward(), .options = options, .seeds = {1}, .target = Target::kCuda};
}

struct Case {
  const char *model, *stack;
  int64_t batch;
  int layers;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.model << " " << c.stack; }

class GpuStageLaws : public testing::TestWithParam<Case> {};

TEST_P(GpuStageLaws, AreKept) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU that this binary can use";
  const Case& c = GetParam();
  Judge judge(subject_of(c.model, c.batch, c.layers));
  const Stack stack = parse_stack(c.stack);
  size_t index = 0;
  while (index < stack.functors.size() && stack.functors[index].functor.name != "pipeline") ++index;
  ASSERT_LT(index, stack.functors.size());
  const Verdict verdict = judge.judge(stack, index);
  EXPECT_TRUE(verdict.ok) << verdict.tensor << " is off by " << verdict.error << ", allowed "
                          << verdict.allowed;
  EXPECT_EQ(verdict.note, "");
}

INSTANTIATE_TEST_SUITE_P(
    Stacks, GpuStageLaws,
    testing::Values(Case{"char", "pipeline(2, schedule=gpipe, parts=4)", 8, 4},
                    Case{"char", "pipeline(2, schedule=1f1b, parts=4)", 8, 4},
                    Case{"char", "pipeline(4, schedule=1f1b, parts=4)", 8, 4},
                    Case{"char", "pipeline(2, schedule=zero_bubble, parts=4)", 8, 4},
                    Case{"char", "pipeline(4, schedule=zb_h2, parts=4)", 8, 4},
                    Case{"char", "pipeline(2, schedule=interleaved, parts=4, chunks=2)", 8, 4},
                    Case{"llama-tiny", "pipeline(3, parts=3)", 6, 3},
                    Case{"llama-tiny", "pipeline(2, parts=2)", 5, 3},
                    Case{"char", "pipeline(2, parts=2) | bf16", 8, 4},
                    Case{"char", "pipeline(2, parts=2) | fp16", 8, 4},
                    Case{"char", "pipeline(2, parts=2) | checkpoint(every=1)", 8, 4},
                    Case{"char", "pipeline(2, parts=2) | checkpoint(every=2) | bf16", 8, 4},
                    Case{"char", "pipeline(2, parts=2) | accumulate(2)", 8, 4},
                    Case{"char", "pipeline(2, parts=2) | offload(optimizer)", 8, 4},
                    Case{"char", "pipeline(2, parts=2) | offload(activations)", 8, 4},
                    Case{"char", "pipeline(2, parts=2) | offload(parameters)", 8, 4},
                    Case{"char", "pipeline(2, parts=2) | data_parallel(2)", 8, 4},
                    Case{"char", "pipeline(2, parts=2) | data_parallel(2) | zero(1)", 8, 4},
                    Case{"char", "pipeline(2, parts=2) | data_parallel(2) | zero(3)", 8, 4},
                    Case{"char", "pipeline(2, parts=2) | tensor_parallel(2)", 8, 4},
                    Case{"llama-tiny",
                         "data_parallel(2) | pipeline(2, parts=2) | tensor_parallel(2) | bf16", 8,
                         4}));

// Hashes of every rank's state after three steps, in order of ranks.
std::vector<std::vector<uint64_t>> bits_after(const Scheme& whole, bool poison, bool one_by_one) {
  const std::vector<Scheme> steps = steps_of_stages(whole);
  std::vector<Plan> plans;
  for (const Scheme& step : steps) {
    plans.push_back(make_plan(
        step, {.threads = num_threads(), .target = Target::kCuda, .deterministic = true}));
  }
  std::vector<std::vector<uint64_t>> all(num_ranks(whole.mesh));
  run_ranks(num_ranks(whole.mesh),
            [&](const Communicator& world) {
              Seat seat(world, whole.mesh);
              const int stage = seat.coordinates().at("stage");
              Run run(steps[stage], plans[stage],
                      {.reference = false, .poison = poison, .seat = &seat});
              if (one_by_one) run.after_call = [](int) {};
              RandomSteps random(run, 3);
              random.begin();
              for (int i = 0; i < 3; ++i) {
                random.feed();
                random.step();
              }
              all[world.rank()] = random.hashes();
            },
            {.memory = gpu_memory()});
  return all;
}

// Laws look at every call, one after the other. Here lanes run beside each other, and what the plan
// frees is poisoned.
TEST_F(GpuStages, MessagesUnderWayKeepEveryBit) {
  for (const std::string stack :
       {"pipeline(2, parts=4)", "pipeline(2, schedule=zero_bubble, parts=4)",
        "pipeline(2, schedule=interleaved, parts=4, chunks=2)", "pipeline(4, parts=4) | bf16",
        "pipeline(2, parts=2) | data_parallel(2) | zero(3)",
        "pipeline(2, parts=2) | offload(optimizer)"}) {
    SCOPED_TRACE(stack);
    const Scheme forward = elaborate_preset(
        "char", {{"batch", 8}, {"seq", 32}, {"layers", 4}, {"hidden", 64}, {"vocab", 97}});
    const Scheme whole =
        build_step(forward, parse_stack(stack),
                   {.target = Target::kCuda, .deterministic = true, .on_mesh = true})
            .scheme;
    const auto wanted = bits_after(whole, false, true);
    for (int time = 0; time < 3; ++time) {
      EXPECT_EQ(bits_after(whole, false, false), wanted) << "under way";
    }
    EXPECT_EQ(bits_after(whole, true, false), wanted) << "with poison";
  }
}

class GpuStageFolder : public TrainFolder {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "no GPU that this binary can use";
    TrainFolder::SetUp();
  }
  json staged(const std::string& name, const std::string& stack, json more = json::object()) const {
    json all =
        options(name, {{"batch", 6},
                       {"threads", 1},
                       {"stack", stack},
                       {"device", "cuda"},
                       {"deterministic", true},
                       {"overwrite", true},
                       {"set", {{"layers", 4}, {"hidden", 32}, {"heads", 2}, {"dropout", 0.1}}}});
    all.update(more);
    return all;
  }
  static TrainResult train_on(int ranks, const json& flags) {
    const ResolvedConfig resolved = resolve_config({}, flags);
    TrainResult result;
    run_ranks(ranks,
              [&](const Communicator& world) {
                Trainer trainer(resolved, world);
                const TrainResult mine = trainer.train(std::atomic<bool>(false));
                if (world.rank() == 0) result = mine;
              },
              {.memory = gpu_memory()});
    return result;
  }
  void expect_same_save(const std::string& a, const std::string& b) const {
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      EXPECT_EQ(read_file(out(a) / file), read_file(out(b) / file)) << file;
    }
  }
};

TEST_F(GpuStageFolder, EveryScheduleTrainsWhatOneRankTrainsInParts) {
  const TrainResult one = train(staged("one", "accumulate(2, tied=apart)"));
  for (const char* how :
       {"2, parts=2", "2, parts=2, schedule=gpipe", "2, parts=2, schedule=zero_bubble",
        "4, parts=2, schedule=zb_2p", "2, parts=2, schedule=interleaved, chunks=2"}) {
    SCOPED_TRACE(how);
    const TrainResult many =
        train_on(how[0] - '0', staged("many", std::string("pipeline(") + how + ")"));
    EXPECT_EQ(many.loss, one.loss);
    EXPECT_EQ(many.val_loss, one.val_loss);
    expect_same_save("many", "one");
  }
}

TEST_F(GpuStageFolder, StagesGoWithOtherAxesAndFunctors) {
  const std::string parts = "accumulate(3, tied=apart)", stages = "pipeline(2, parts=3)";
  for (const std::string rest :
       {" | bf16", " | checkpoint(every=2)", " | bf16 | checkpoint(every=1)"}) {
    SCOPED_TRACE(rest);
    const TrainResult one = train(staged("one", parts + rest));
    EXPECT_EQ(train_on(2, staged("many", stages + rest)).loss, one.loss);
    expect_same_save("many", "one");
  }
  for (const std::string rest :
       {" | data_parallel(2)", " | data_parallel(2) | zero(3)", " | tensor_parallel(2)"}) {
    SCOPED_TRACE(rest);
    const TrainResult one = train_on(2, staged("one", parts + rest));
    EXPECT_EQ(train_on(4, staged("many", stages + rest)).loss, one.loss);
    expect_same_save("many", "one");
  }
}

TEST_F(GpuStageFolder, ResumesOnStagesAndWithout) {
  const TrainResult one = train(staged("one", "accumulate(3, tied=apart)"));
  train_on(2, staged("parts", "pipeline(2, parts=3)", {{"stop_after", 3}}));
  fs::copy(out("parts"), out("alone"), fs::copy_options::recursive);
  EXPECT_EQ(train_on(2, resume("parts")).loss, one.loss);
  expect_same_save("parts", "one");
  const json alone = {{"stack", "accumulate(3, tied=apart)"}, {"ranks", 1}};
  EXPECT_EQ(train(resume("alone", alone)).loss, one.loss);
  expect_same_save("alone", "one");
}

// With products that are timed: each stage has others, and all are in the run's folder.
TEST_F(GpuStageFolder, StagesShareOneTableOfProducts) {
  const json timed = {{"deterministic", false}};
  const std::string stack = "pipeline(2, parts=3) | bf16";
  const TrainResult whole = train_on(2, staged("whole", stack, timed));
  EXPECT_EQ(whole.step, 7);
  json first = timed;
  first["stop_after"] = 3;
  train_on(2, staged("run", stack, first));
  const TrainResult resumed = train_on(2, resume("run"));
  EXPECT_EQ(resumed.step, 7);
  EXPECT_NEAR(*resumed.loss, *whole.loss, 1e-2);
}

TEST_F(GpuStageFolder, MemoryOfAllStagesIsCounted) {
  std::string refused = "no error";
  try {
    train_on(2, staged("run", "pipeline(2, parts=2)",
                       {{"batch", 1000000}, {"context", 128}, {"eval_batches", 1}}));
  } catch (const std::runtime_error& e) {
    refused = e.what();
  }
  EXPECT_TRUE(refused.starts_with("2 ranks on one GPU want ")) << refused;
  EXPECT_NE(refused.find(" to "), std::string::npos) << refused;
  EXPECT_FALSE(fs::exists(out("run"))) << "nothing was written";
}

}  // namespace
}  // namespace adjoint
