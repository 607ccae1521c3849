"""A small profile of kernels in the published layout, written by hand."""

DENSE = """layer,tokens,time_us
embedding,1,1
embedding,9,9
layernorm,1,2
layernorm,9,2
qkv_proj,1,3
qkv_proj,9,11
o_proj,1,1
o_proj,9,1
gate_up_proj,1,5
gate_up_proj,9,5
act_fn,1,1
act_fn,9,1
down_proj,1,4
down_proj,9,4
final_layernorm,1,2
final_layernorm,9,2
"""
ATTENTION = """prefill_chunk,kv_prefill,n_decode,kv_decode,time_us
0,0,1,16,3
0,0,2,16,4
4,0,0,0,5
4,8,0,0,7
8,0,0,0,12
8,8,0,0,15
4,0,1,16,8.6
"""
NEWER = """layer,prefill_chunk,prefill_key,n_decode,kv_decode,decode_q_len,time_us
attention,0,0,1,16,1,3
attention,0,0,2,16,1,4
attention,0,0,2,16,4,99
attention,4,2,0,0,1,5
attention,4,10,0,0,1,7
attention,8,4,0,0,1,12
attention,8,12,0,0,1,15
attention,4,2,1,16,1,8.6
"""
PER_SEQUENCE = "layer,sequences,time_us\nlm_head,1,10\nlm_head,9,18\nsampler,1,1\nsampler,9,1\n"
MOE = """ep,tokens,activated_experts,time_us
1,1,2,10
1,9,2,20
1,9,8,80
2,1,1,5
2,9,4,30
"""
HARDWARE = """hardware: INVENTED
measured:
  interconnect:
    npus: 2
    samples:
    - collective: all_gather
      bytes: 16
      us: 999.5
    - collective: all_reduce
      bytes: 16
      us: 2.5
      repeats_us:
      - 2.5
    - collective: all_reduce
      bytes: 144
      us: 10.5
"""


def write(base, *, tp=1, **tables):
    """Write a profile as hardware/owner/model/variant/tp<N>; return the variant's folder."""
    variant = base / "GPU" / "owner" / "model" / "bf16"
    folder = variant / f"tp{tp}"
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"dense": DENSE, "attention": ATTENTION, **tables}
    for name, text in texts.items():
        if text is None:
            (folder / f"{name}.csv").unlink(missing_ok=True)
        elif name == "hardware":
            (base / "GPU" / "hardware.yaml").write_text(text)
        else:
            (folder / f"{name}.csv").write_text(text)
    return variant
