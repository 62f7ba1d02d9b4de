// Speed of the CPU kernels against what the machine could do. See --help.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <fstream>
#include <getopt.h>
#include <map>
#include <stdexcept>
#include <utility>

#include "cases.h"
#include "machine.h"
#include "measure.h"

namespace RPU::bench {
namespace {

constexpr const char *kHelp =
    "Usage: rpucuda_benchmarks [--quick] [--filter TEXT] [--seconds S] [--json FILE]\n"
    "  --quick        512 x 512 with batches of 64 alone\n"
    "  --filter TEXT  only cases whose name contains TEXT\n"
    "  --seconds S    time for each case (0.3)\n"
    "  --json FILE    also write everything there; benchmarks/plot.py draws it\n"
    "Every case is checked against the plainest code before it is timed. 'bound' is the larger of "
    "the bytes over the copy\n"
    "bandwidth and the lane operations over the peak, both measured in this run. "
    "OMP_WAIT_POLICY=passive is advisable where\n"
    "other processes want the cores.\n";

struct Options {
  bool quick = false;
  std::string filter;
  double seconds = 0.3;
  std::string json;
};

struct Result {
  Case description;
  Timing timing;
  double bound;  // microseconds
};

// What AIHWKit took for such an update on two cores with AVX-512, measured once and not beside
// these numbers.
const std::map<std::pair<std::string, std::string>, double> kOrientation{
    {{"update dense", "ConstantStep"}, 768e3}, {{"update dense", "SoftBounds"}, 807e3}};

Options parse(int argc, char **argv) {
  const option longOptions[] = {
      {"quick", no_argument, nullptr, 'q'},         {"filter", required_argument, nullptr, 'f'},
      {"seconds", required_argument, nullptr, 's'}, {"json", required_argument, nullptr, 'j'},
      {"help", no_argument, nullptr, 'h'},          {nullptr, 0, nullptr, 0}};
  Options options;
  for (int c; (c = getopt_long(argc, argv, "", longOptions, nullptr)) != -1;) {
    switch (c) {
      case 'q':
        options.quick = true;
        break;
      case 'f':
        options.filter = optarg;
        break;
      case 's':
        options.seconds = std::stod(optarg);
        break;
      case 'j':
        options.json = optarg;
        break;
      default:
        std::fputs(kHelp, c == 'h' ? stdout : stderr);
        std::exit(c == 'h' ? 0 : 2);
    }
  }
  return options;
}

void printTable(const Result &r) {
  const Case &c = r.description;
  std::printf("%-19s %-26s %5ld %5ld %-9s %3d %11.1f %10.1f %10.1f %5d %9.1f %6.1f%%",
              c.operation.c_str(), c.device.c_str(), static_cast<long>(c.size),
              static_cast<long>(c.batch), isaName(c.isa), c.threads, r.timing.median,
              r.timing.lowerQuartile, r.timing.upperQuartile, r.timing.runs, r.bound,
              100.0 * r.bound / r.timing.median);
  const auto orientation = kOrientation.find({c.operation, c.device});
  if (orientation != kOrientation.end() && c.size == 512 && c.batch == 64 && c.threads == 2) {
    std::printf("   orientation: AIHWKit %.0fx", orientation->second / r.timing.median);
  }
  std::printf("\n");
  std::fflush(stdout);
}

void writeJson(const std::string &path, const std::map<std::pair<Isa, int>, Peaks> &peaks,
               const std::vector<Result> &results, const std::vector<Memory> &memory,
               double loadBefore) {
  std::ofstream out(path);
  char date[32];
  const std::time_t now = std::time(nullptr);
  std::strftime(date, sizeof date, "%Y-%m-%d", std::gmtime(&now));
  out << "{\n  \"date\": \"" << date << "\",\n  \"cpu\": \"" << processorName()
      << "\",\n  \"compiler\": \"" << __VERSION__ << "\",\n  \"load_average\": [" << loadBefore
      << ", " << loadAverage() << "],\n  \"peaks\": [";
  const char *comma = "\n";
  for (const auto &[key, p] : peaks) {
    out << comma << "    {\"isa\": \"" << isaName(key.first) << "\", \"threads\": " << key.second
        << ", \"lane_operations_per_s\": " << p.laneOperations
        << ", \"copy_bytes_per_s\": " << p.copyBytes << "}";
    comma = ",\n";
  }
  out << "\n  ],\n  \"memory\": [";
  comma = "\n";
  for (const Memory &m : memory) {
    out << comma << "    {\"what\": \"" << m.what
        << "\", \"bytes_per_weight\": " << m.bytesPerWeight << "}";
    comma = ",\n";
  }
  out << "\n  ],\n  \"unit\": \"us\",\n  \"results\": [";
  comma = "\n";
  for (const Result &r : results) {
    const Case &c = r.description;
    out << comma << "    {\"operation\": \"" << c.operation << "\", \"device\": \"" << c.device
        << "\", \"size\": " << c.size << ", \"batch\": " << c.batch << ", \"isa\": \""
        << isaName(c.isa) << "\", \"threads\": " << c.threads << ", \"median\": " << r.timing.median
        << ", \"lower_quartile\": " << r.timing.lowerQuartile
        << ", \"upper_quartile\": " << r.timing.upperQuartile
        << ", \"fastest\": " << r.timing.fastest << ", \"runs\": " << r.timing.runs
        << ", \"bound\": " << r.bound << "}";
    comma = ",\n";
  }
  out << "\n  ]\n}\n";
  if (!out) throw std::runtime_error("could not write " + path);
}

int run(const Options &options) {
  const double loadBefore = loadAverage();
  std::printf("%s, load average %.1f\n", processorName().c_str(), loadBefore);
  std::map<std::pair<Isa, int>, Peaks> peaks;
  for (const Isa isa : supportedIsas()) {
    for (const int threads : {1, 2}) {
      const Peaks p = peaks[{isa, threads}] = measurePeaks(isa, threads);
      std::printf("  %-9s %d threads: %.1f G lane operations/s, copy %.1f GB/s\n", isaName(isa),
                  threads, p.laneOperations * 1e-9, p.copyBytes * 1e-9);
    }
  }
  const std::vector<Memory> memory = memoryOfDevices();
  bool within = true;
  for (const Memory &m : memory) {
    std::printf("  %5.1f bytes per weight: %s%s\n", m.bytesPerWeight, m.what.c_str(),
                m.limit > 0.0 && m.bytesPerWeight > m.limit ? "  ABOVE ITS TARGET" : "");
    within = within && !(m.limit > 0.0 && m.bytesPerWeight > m.limit);
  }
  std::printf("\n%-19s %-26s %5s %5s %-9s %3s %11s %10s %10s %5s %9s %7s\n", "operation", "device",
              "size", "batch", "isa", "thr", "median us", "quartile", "quartile", "runs",
              "bound us", "reached");
  std::vector<Result> results;
  for (const auto &make : allCases(options.quick)) {
    Case c = make();
    if (c.name().find(options.filter) == std::string::npos) continue;
    c.verify();
    Timing t = measure(options.seconds, c.run);
    for (double *time : {&t.median, &t.lowerQuartile, &t.upperQuartile, &t.fastest})
      *time /= c.perRun;
    const Peaks &p = peaks.at({c.isa, c.threads});
    const double bound =
        1e6 * std::max(c.work.bytes / p.copyBytes, c.work.laneOperations / p.laneOperations);
    c.run = {};  // gives its arrays back
    c.verify = {};
    results.push_back({c, t, bound});
    printTable(results.back());
  }
  if (!options.json.empty()) writeJson(options.json, peaks, results, memory, loadBefore);
  return within ? 0 : 1;
}

}  // namespace
}  // namespace RPU::bench

int main(int argc, char **argv) {
  try {
    return RPU::bench::run(RPU::bench::parse(argc, argv));
  } catch (const std::exception &error) {
    std::fprintf(stderr, "rpucuda_benchmarks: %s\n", error.what());
    return 1;
  }
}
