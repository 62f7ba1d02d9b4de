# Flags that equal bits depend on (for every compiler, instruction set and backend), and the
# sanitizers. Headers contain PULSORA_HD arithmetic, so their users need these flags: link
# `pulsora_numerics` PUBLIC.
set(PULSORA_SANITIZE "" CACHE STRING "Sanitizers, comma separated: address,undefined or thread")

# No contraction to fma, because only some machines have it; no errno and no traps, which would
# block vectorisation.
set(numerics -ffp-contract=off -fno-math-errno -fno-trapping-math)
list(JOIN numerics "," nvcc_numerics)

add_library(pulsora_numerics INTERFACE)
target_compile_features(pulsora_numerics INTERFACE cxx_std_17)
target_compile_options(pulsora_numerics INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:${numerics}>"
  "$<$<COMPILE_LANGUAGE:CUDA>:--fmad=false;-Xcompiler=${nvcc_numerics}>")
if(PULSORA_SANITIZE)
  set(sanitize -fsanitize=${PULSORA_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_compile_options(pulsora_numerics INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${sanitize}>")
  target_link_options(pulsora_numerics INTERFACE ${sanitize})
endif()
