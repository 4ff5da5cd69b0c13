"""The moments of a training step that can be its worst.

Example: Llama-2-7B, full fine-tuning in bf16. With 8 sequences of 2048 and no checkpointing the loss is the worst moment
(147.2 GB: what 32 layers keep, and fp32 logits three times). With one sequence and full checkpointing it is the
end of the backward pass (53.9 GB: all gradients exist, activations hardly any).
"""

from __future__ import annotations

from costguard.core import overheads
from costguard.core.frameworks import modules
from costguard.core.measure import Measure
from costguard.core.phase import Phase, phase
from costguard.core.recipe import Parallel, Recipe
from costguard.core.split import Stage
from costguard.core.states import States, dequantised, load_copies


def training_phases(m: Measure, recipe: Recipe, parallel: Parallel, stage: Stage, held: States) -> tuple[Phase, ...]:
    """What is alive at each of these moments on one GPU of `stage`."""
    tokens = m.tokens / (parallel.tp * parallel.cp)
    last, casts, one = tokens * stage.last, m.casts * stage.share / parallel.tp, m.cast_layer / parallel.tp
    none, tied = recipe.checkpointing == "none", m.tied
    head_cast = m.cast_head * stage.last / parallel.tp
    layer, rest = m.layer, m.outside - m.stem
    kept = tokens * stage.share * m.waiting
    alive = kept * stage.in_flight + tokens * (m.mask + m.stem) - tokens * m.unneeded * stage.first
    left = kept * (stage.in_flight - 1) + tokens * (m.mask + m.stem)
    again = 0.0 if none else tokens * layer.whole
    once = casts if none else one
    inside, loss, back = _loss(m, recipe, held, last * m.vocab, head_cast)
    g, o, w, buffers = (
        held.gradients,
        held.optimizer,
        held.weights,
        held.gathered + held.bucket + dequantised(m, recipe, parallel),
    )
    before = g if recipe.gradient_accumulation > 1 else 0.0
    whole = parallel.stage < 2 and not recipe.optimizer_in_backward  # noqa: PLR2004  # gradients stay until the step
    late = g - held.embedding_gradient * (not tied) if whole else g
    head, unit = (held.head_gradient, 0.0) if whole else (0.0, held.layer_gradient)
    gathers = m.tokens / parallel.cp * layer.gathers * (parallel.tp > 1)
    feed = tokens * layer.feed_forward_work + gathers
    attend = tokens * (layer.attention_work - layer.feed_forward) + gathers
    ran = held.layer_gradient - held.attention_gradient

    def at(name: str, gradients: float, activations: float, logits: float, extra: float) -> Phase:
        return phase(
            name,
            weights=w,
            optimizer=o,
            gradients=max(gradients, before),
            activations=activations,
            logits=logits,
            buffers=buffers + extra,
        )

    return (
        phase("load", weights=w, buffers=load_copies(m, recipe, parallel)),
        at("forward", 0.0, alive + last * rest, inside, held.root + head_cast + (casts if m.casts_cached else once)),
        at("loss", 0.0, alive + last * rest, loss, held.root + head_cast + casts * none),
        at("backward, head", held.head_gradient, alive + last * rest, back, held.root + head_cast + casts * none),
        at("backward, last feed-forward", head + (held.down_gradient if whole else unit), alive + again + feed, 0.0, once),
        at("backward, last attention", head + (ran if whole else unit), alive + again + attend, 0.0, once),
        at(
            "backward, first feed-forward",
            late + (held.down_gradient - held.layer_gradient if whole else unit),
            left + tokens * layer.whole + feed,
            0.0,
            one,
        ),
        at(
            "backward, first attention",
            late - held.attention_gradient if whole else late + unit,
            left + tokens * layer.whole + attend,
            0.0,
            one,
        ),
        at(
            "backward, embedding",
            g + held.embedding_gradient * (2 * tied if whole else 1 + tied),
            left + tokens * layer.entry,
            0.0,
            0.0,
        ),
        at("step", g, 0.0, 0.0, 0.0),
    )


def _loss(m: Measure, recipe: Recipe, held: States, numbers: float, head_cast: float) -> tuple[float, float, float]:
    """Bytes of `numbers` logits inside the loss, on the way back through it, and on the way back through the head.

    First the logits, their copy in the loss's precision and its log-softmax; then the log-softmax and two gradients; then
    one gradient as computed, which under autocast is gone when the head's gradient is cast to fp32.
    """
    loss, compute = m.loss_number, m.numbers.compute
    if recipe.fused_loss:
        whole = compute * numbers if modules(recipe).logits_whole else 0.0
        chunks = overheads.LOSS_CHUNKS if whole else max(m.vocab / m.hidden, 1.0)
        return whole, 2 * whole + 3 * loss * numbers / chunks, whole
    inside = (compute + loss * (1 if loss == compute else 2)) * numbers
    back = compute * numbers
    if m.numbers.autocast and held.head_gradient:
        back = max(0.0, back - held.head_gradient) + head_cast
    return inside, 3 * loss * numbers, back
