"""Tokenizers of model families: their own chat templates, over a small byte-level vocabulary."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers, trainers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

HERE = Path(__file__).parent / "templates"


class Family(NamedTuple):
    """What a test must know of a family.

    Attributes:
        template: File name of its chat template.
        specials: Its control tokens.
        plain: Tokens of its own that are no special ones.
        end: Closes a message.
        eos: The tokenizer's own end token.
        header: What begins the model's turn.
        has_system: Whether it knows system messages.
        tools: What shows that its template takes tools; empty if it does not.
        switch: Whether it can switch thinking.
    """

    template: str
    specials: tuple[str, ...]
    end: str
    eos: str
    header: str
    plain: tuple[str, ...] = ()
    bos: str | None = None
    has_system: bool = True
    tools: str = ""
    switch: bool = False


_CHATML = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_CHATML_HEADER = "<|im_start|>assistant\n"
_THINK = ("<think>", "</think>")
_CALLS = ("<tool_call>", "</tool_call>")
_LLAMA = (
    *("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>"),
    *("<|eot_id|>", "<|eom_id|>", "<|python_tag|>"),
)
_LLAMA_HEADER = "<|start_header_id|>assistant<|end_header_id|>\n\n"
_GEMMA = ("<bos>", "<eos>", "<pad>", "<start_of_turn>", "<end_of_turn>", "<start_of_image>")
_GEMMA_HEADER = "<start_of_turn>model\n"

FAMILIES = {
    "qwen2.5": Family(
        *("qwen2_5", _CHATML, "<|im_end|>", "<|im_end|>", _CHATML_HEADER, _CALLS), tools="<tools>"
    ),
    "qwen3": Family(
        *("qwen3", _CHATML, "<|im_end|>", "<|im_end|>", _CHATML_HEADER, _THINK + _CALLS),
        tools="<tools>",
        switch=True,
    ),
    "llama3.1": Family(
        *("llama3_1", _LLAMA, "<|eot_id|>", "<|eot_id|>", _LLAMA_HEADER),
        bos="<|begin_of_text|>",
        tools="Given the following functions",
    ),
    "llama3.2": Family(
        *("llama3_2", _LLAMA, "<|eot_id|>", "<|eot_id|>", _LLAMA_HEADER),
        bos="<|begin_of_text|>",
        tools="Given the following functions",
    ),
    "smollm2": Family("smollm2", _CHATML, "<|im_end|>", "<|im_end|>", _CHATML_HEADER),
    "smollm3": Family(
        *("smollm3", _CHATML, "<|im_end|>", "<|im_end|>", _CHATML_HEADER, _THINK + _CALLS),
        switch=True,
    ),
    "gemma2": Family(
        *("gemma", _GEMMA, "<end_of_turn>", "<eos>", _GEMMA_HEADER),
        bos="<bos>",
        has_system=False,
    ),
    "gemma3": Family(
        *("gemma3", _GEMMA, "<end_of_turn>", "<eos>", _GEMMA_HEADER),
        bos="<bos>",
    ),
}


def template_text(name: str) -> str:
    """A chat template: ours, or one that TRL comes with."""
    own = HERE / f"{name}.jinja"
    return (own if own.is_file() else files("trl") / "chat_templates" / own.name).read_text()


def tokenizer_of(name: str) -> PreTrainedTokenizerFast:
    """A family's tokenizer: its control tokens and template, bytes and some merges."""
    family = FAMILIES[name]
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    text = template_text(family.template)
    tokenizer.train_from_iterator(
        [text, "\n\n you move the ball and look around\n"],
        trainers.BpeTrainer(
            vocab_size=400,
            show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in family.plain])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=family.bos,
        eos_token=family.eos,
        pad_token=family.specials[0],
        additional_special_tokens=list(family.specials),
    )
    fast.chat_template = text
    return fast
