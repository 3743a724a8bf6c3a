import pytest
from transformers import LlamaConfig, LlamaForCausalLM

from tests.trainer.families import tokenizer_of
from trainer.chat import ChatFormat
from trainer.config import ModelConfig
from trainer.models import character_tokenizer, load_model

CHATML = (
    "{% for m in messages %}<sys>{{ m['role'] }}\n{{ m['content'] }}<end>\n{% endfor %}"
    "{% if add_generation_prompt %}<sys>assistant\n{% endif %}"
)


def test_the_pieces_join_to_what_the_template_would_write():
    tokenizer = character_tokenizer()
    tokenizer.chat_template = CHATML
    chat = ChatFormat(tokenizer, "play")
    act = tokenizer("N")["input_ids"]
    end = [tokenizer.eos_token_id]
    whole = tokenizer.apply_chat_template(
        [
            {"role": "system", "content": "play"},
            {"role": "user", "content": "here"},
            {"role": "assistant", "content": "N"},
            {"role": "user", "content": "there"},
        ],
        tokenize=False,
        add_generation_prompt=True,
    )
    ended = chat.first("here") + act + end + chat.next("there", ended=True)
    cut = chat.first("here") + act + chat.next("there", ended=False)
    assert tokenizer.decode(ended) == tokenizer.decode(cut) == whole


def test_a_template_that_rewrites_earlier_turns_is_refused():
    tokenizer = character_tokenizer()
    tokenizer.chat_template = "{{ messages | length }}" + tokenizer.chat_template
    with pytest.raises(ValueError, match="rewrites earlier turns"):
        ChatFormat(tokenizer)


def test_a_tokenizer_without_template_is_refused():
    tokenizer = character_tokenizer()
    tokenizer.chat_template = None
    with pytest.raises(ValueError, match="no chat template"):
        ChatFormat(tokenizer)


def test_a_model_stops_where_its_template_ends_a_turn(tmp_path):
    tokenizer = tokenizer_of("gemma2")
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        eos_token_id=tokenizer.eos_token_id,
    )
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    model, loaded = load_model(ModelConfig(str(tmp_path)), context_tokens=64, seed=0)
    ends = [loaded.convert_tokens_to_ids(text) for text in ("<eos>", "<end_of_turn>")]
    assert model.generation_config.eos_token_id == ends
