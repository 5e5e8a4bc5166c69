#include "comm/communicator.h"

#include <algorithm>
#include <tuple>

#include "base/text.h"
#include "comm/traffic.h"

namespace adjoint {

// Groups of one rank share its traffic. A group has two channels: collectives are told apart by
// their number, and messages between two ranks need only their order.
struct Communicator::Group {
  std::shared_ptr<Traffic> traffic;
  std::vector<int> members;  // ranks of the world
  int rank = 0;
  uint32_t channel = 0;
  uint32_t sequence = 0;
  std::optional<Algorithm> algorithm;
  GpuGroup* gpus = nullptr;
};

namespace {

constexpr uint32_t kChannelsOfGroup = 2;

std::byte* writable(ReadBytes bytes) { return const_cast<std::byte*>(bytes.data()); }

int64_t count(ReadBytes bytes) { return static_cast<int64_t>(bytes.size()); }

}  // namespace

Pending& Pending::operator=(Pending&& other) noexcept {
  if (journey_) journey_->wait_quietly();
  traffic_ = std::move(other.traffic_);
  journey_ = std::move(other.journey_);
  return *this;
}

Pending::~Pending() {
  if (journey_) journey_->wait_quietly();
}

void Pending::wait() {
  if (const auto journey = std::move(journey_)) traffic_->wait(*journey);
}

bool Pending::done() const { return !journey_ || journey_->done(); }

Communicator::Communicator(std::unique_ptr<Wire> wire) : group_(std::make_shared<Group>()) {
  group_->rank = wire->rank();
  for (int i = 0; i < wire->size(); ++i) group_->members.push_back(i);
  group_->traffic = std::make_shared<Traffic>(std::move(wire));
  group_->traffic->next_channel = kChannelsOfGroup;
}

int Communicator::rank() const { return group_->rank; }
int Communicator::size() const { return static_cast<int>(group_->members.size()); }

Communicator Communicator::split(int color, int key) const {
  struct Said {
    int color, key, rank;
    uint32_t channel;
  };
  const Said mine{color, key, rank(), group_->traffic->next_channel};
  std::vector<Said> said(size());
  all_gather(std::as_bytes(std::span(&mine, 1)), bytes_of(said)).wait();
  auto group = std::make_shared<Group>();
  group->traffic = group_->traffic;
  group->algorithm = group_->algorithm;
  // A channel that none of these ranks has used. Groups of other colors take the same one: they
  // have no ranks in common.
  group->channel = std::ranges::max_element(said, {}, &Said::channel)->channel;
  group_->traffic->next_channel = group->channel + kChannelsOfGroup;
  std::erase_if(said, [&](const Said& other) { return other.color != color; });
  std::ranges::sort(said, {}, [](const Said& other) { return std::tuple(other.key, other.rank); });
  for (const Said& other : said) {
    if (other.rank == rank()) group->rank = static_cast<int>(group->members.size());
    group->members.push_back(group_->members[other.rank]);
  }
  return Communicator(std::move(group));
}

bool Communicator::one_process() const { return group_->traffic->wire().one_process(); }

GpuGroup* Communicator::gpus() const { return group_->gpus; }
void Communicator::set_gpus(GpuGroup* gpus) { group_->gpus = gpus; }

void Communicator::use(std::optional<Algorithm> algorithm) { group_->algorithm = algorithm; }

void Communicator::agree(uint64_t hash, std::string_view what) const {
  std::vector<uint64_t> said(size());
  all_gather(std::as_bytes(std::span(&hash, 1)), bytes_of(said)).wait();
  const auto sayers = [&](uint64_t value) { return std::ranges::count(said, value); };
  // The first of equally many, so that every rank names the same ones.
  const uint64_t usual = *std::ranges::max_element(said, {}, sayers);
  std::vector<std::string> same, other;
  for (int i = 0; i < size(); ++i) {
    (said[i] == usual ? same : other).push_back(std::to_string(i));
  }
  if (other.empty()) return;
  const auto ranks = [](const std::vector<std::string>& list) {
    return (list.size() == 1 ? "rank " : "ranks ") + join(list, ", ");
  };
  fail("all ranks need the same ", what, ", and that of ", ranks(other), " is not that of ",
       ranks(same));
}

void Communicator::progress(int64_t step, std::string_view object) const {
  group_->traffic->wire().progress(step, object);
}

void Communicator::abort(const std::string& reason) const { throw group_->traffic->abort(reason); }

void Communicator::refuse(const std::string& reason) const {
  throw group_->traffic->refuse(reason);
}

Algorithm Communicator::choice(Collective collective, int64_t whole) const {
  const auto has = algorithms_of(collective);
  if (group_->algorithm && std::ranges::find(has, *group_->algorithm) != has.end()) {
    return *group_->algorithm;
  }
  return algorithm_for(collective, size(), whole);
}

RouteRequest Communicator::request(Collective collective, int64_t whole, int root,
                                   int64_t element) const {
  CHECK(root >= 0 && root < size(), "a root of this group");
  return {.collective = collective,
          .algorithm = choice(collective, whole),
          .rank = rank(),
          .ranks = size(),
          .root = root,
          .whole = whole,
          .element = element};
}

Bytes Communicator::scratch(Collective collective, Dtype dtype, int64_t whole) const {
  return make_route(request(collective, whole, 0, size_of(dtype).count)).scratch;
}

std::shared_ptr<Journey> Communicator::make_journey(const RouteRequest& request, ReadBytes in,
                                                    WriteBytes out, WriteBytes scratch, Dtype dtype,
                                                    Reduction reduction) const {
  auto journey = std::make_shared<Journey>(make_route(request));
  journey->members = group_->members;
  journey->channel = group_->channel;
  journey->dtype = dtype;
  journey->reduction = reduction;
  if (scratch.empty() && journey->route.scratch > Bytes{0}) {
    journey->own_scratch.resize(journey->route.scratch.count);
    scratch = journey->own_scratch;
  }
  CHECK(count(scratch) >= journey->route.scratch.count, "as much scratch as the call wants");
  journey->pieces[static_cast<int>(RoutePiece::kIn)] = writable(in);
  journey->pieces[static_cast<int>(RoutePiece::kOut)] = out.data();
  journey->pieces[static_cast<int>(RoutePiece::kScratch)] = scratch.data();
  return journey;
}

Pending Communicator::start(const RouteRequest& request, ReadBytes in, WriteBytes out,
                            WriteBytes scratch, Dtype dtype, Reduction reduction) const {
  auto journey = make_journey(request, in, out, scratch, dtype, reduction);
  journey->sequence = group_->sequence++;
  group_->traffic->start(journey);
  return Pending(group_->traffic, std::move(journey));
}

std::shared_ptr<Standing> Communicator::standing(Collective collective, Dtype dtype, ReadBytes in,
                                                 WriteBytes out, WriteBytes scratch,
                                                 int64_t segment) const {
  const int64_t whole = std::max(count(in), count(out));
  RouteRequest wanted = request(collective, whole, 0, size_of(dtype).count);
  wanted.segment = segment;
  CHECK(count(scratch) >= make_route(wanted).scratch.count, "scratch is given to a standing call");
  auto journey = make_journey(wanted, in, out, scratch, dtype, Reduction::kSum);
  return std::shared_ptr<Standing>(new Standing(group_, std::move(journey)));
}

Standing::~Standing() {
  if (begun_) journey_->wait_quietly();
}

void Standing::begin() {
  CHECK(!begun_, "a standing call is begun when the time before is done");
  journey_->start_again();
  journey_->sequence = group_->sequence++;
  begun_ = true;
  group_->traffic->start(journey_);
}

void Standing::wait() {
  if (!begun_) return;
  begun_ = false;
  group_->traffic->wait(*journey_);
}

Pending Communicator::send(int to, ReadBytes data) const {
  CHECK(to >= 0 && to < size() && to != rank(), "a message goes to another rank of the group");
  Route route;
  route.rounds.emplace_back().messages.push_back({to, true, {RoutePiece::kIn, 0, count(data)}});
  auto journey = std::make_shared<Journey>(std::move(route));
  journey->members = group_->members;
  journey->channel = group_->channel + 1;
  journey->pieces[static_cast<int>(RoutePiece::kIn)] = writable(data);
  group_->traffic->start(journey);
  return Pending(group_->traffic, std::move(journey));
}

Pending Communicator::receive(int from, WriteBytes data) const {
  CHECK(from >= 0 && from < size() && from != rank(), "a message is from another rank");
  Route route;
  route.rounds.emplace_back().messages.push_back({from, false, {RoutePiece::kOut, 0, count(data)}});
  auto journey = std::make_shared<Journey>(std::move(route));
  journey->members = group_->members;
  journey->channel = group_->channel + 1;
  journey->pieces[static_cast<int>(RoutePiece::kOut)] = data.data();
  group_->traffic->start(journey);
  return Pending(group_->traffic, std::move(journey));
}

Pending Communicator::broadcast(int root, WriteBytes data) const {
  return start(request(Collective::kBroadcast, count(data), root, 1), data, data, {}, Dtype::kU8,
               Reduction::kSum);
}

Pending Communicator::scatter(int root, ReadBytes in, WriteBytes out) const {
  CHECK(rank() != root || in.size() == out.size() * size(), "the root has every rank's segment");
  return start(request(Collective::kScatter, count(out) * size(), root, 1), in, out, {}, Dtype::kU8,
               Reduction::kSum);
}

Pending Communicator::gather(int root, ReadBytes in, WriteBytes out) const {
  CHECK(rank() != root || out.size() == in.size() * size(), "the root has room for all segments");
  return start(request(Collective::kGather, count(in) * size(), root, 1), in, out, {}, Dtype::kU8,
               Reduction::kSum);
}

Pending Communicator::all_gather(ReadBytes in, WriteBytes out) const {
  CHECK(out.size() == in.size() * size(), "there is room for all segments");
  return start(request(Collective::kAllGather, count(out), 0, 1), in, out, {}, Dtype::kU8,
               Reduction::kSum);
}

Pending Communicator::all_to_all(ReadBytes in, WriteBytes out) const {
  CHECK(out.size() == in.size() && in.size() % size() == 0, "a segment for every rank");
  CHECK(in.empty() || in.data() != out.data(), "segments are exchanged into other memory");
  return start(request(Collective::kAllToAll, count(in), 0, 1), in, out, {}, Dtype::kU8,
               Reduction::kSum);
}

Pending Communicator::barrier() const {
  return start(request(Collective::kBarrier, 0, 0, 1), {}, {}, {}, Dtype::kU8, Reduction::kSum);
}

Pending Communicator::reduce_scatter(Dtype dtype, ReadBytes in, WriteBytes out, Reduction reduction,
                                     WriteBytes scratch) const {
  CHECK(in.size() == out.size() * size(), "`in` has a segment for every rank");
  CHECK(count(out) % size_of(dtype).count == 0, "segments are whole elements");
  return start(request(Collective::kReduceScatter, count(in), 0, size_of(dtype).count), in, out,
               scratch, dtype, reduction);
}

Pending Communicator::all_reduce(Dtype dtype, ReadBytes in, WriteBytes out, Reduction reduction,
                                 WriteBytes scratch) const {
  CHECK(in.size() == out.size(), "an all-reduce keeps its size");
  CHECK(count(in) % size_of(dtype).count == 0, "vectors are whole elements");
  return start(request(Collective::kAllReduce, count(in), 0, size_of(dtype).count), in, out,
               scratch, dtype, reduction);
}

}  // namespace adjoint
