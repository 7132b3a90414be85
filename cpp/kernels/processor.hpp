// What an x86-64 processor and its operating system support, asked by CPUID. The compilers' builtin
// for it needs a runtime library that not all of them have.
#pragma once

#if defined(__x86_64__)
#include <cpuid.h>

#include <cstdint>

namespace l2route {

// Whether the system saves AVX-512 registers from their first use on, and does not show it before.
#if defined(__APPLE__)
inline constexpr bool kSavesLate = true;
#else
inline constexpr bool kSavesLate = false;
#endif

struct Processor {
  bool has_avx2 = false;    // with FMA and half floats
  bool has_avx512 = false;  // F and DQ
  bool has_vnni = false;    // with BW and VL
};

// The parts of registers that the operating system saves for each thread.
inline std::uint32_t saved_registers() {
  std::uint32_t low = 0, high = 0;
  asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

inline Processor ask_processor() {
  const auto has = [](std::uint32_t word, std::uint32_t bits) { return (word & bits) == bits; };
  constexpr std::uint32_t kSavesRegisters = 1u << 27;
  constexpr std::uint32_t kYmm = 0x06, kZmm = 0xE6;
  std::uint32_t a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || !has(c, kSavesRegisters)) return {};
  const std::uint32_t saved = saved_registers();
  const bool has_avx = has(saved, kYmm) && has(c, bit_AVX | bit_FMA | bit_F16C);
  if (!has_avx || __get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return {};
  const bool saves_zmm = kSavesLate || has(saved, kZmm);
  Processor processor;
  processor.has_avx2 = has(b, bit_AVX2);
  processor.has_avx512 = processor.has_avx2 && saves_zmm && has(b, bit_AVX512F | bit_AVX512DQ);
  processor.has_vnni =
      processor.has_avx512 && has(b, bit_AVX512BW | bit_AVX512VL) && has(c, bit_AVX512VNNI);
  return processor;
}

// Asked once: under a hypervisor every question is a trap.
inline const Processor& processor() {
  static const Processor asked = ask_processor();
  return asked;
}

}  // namespace l2route
#endif
