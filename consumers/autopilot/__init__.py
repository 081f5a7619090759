"""Autopilot: decides on a pipeline's rollout, and writes each change to the control topic.

In: the control topic, the evaluation of the current step, and the versions that the model's repository has.
Out: records on the control topic, figures on the topic of evaluations, webhooks.

All that it must remember is on these two topics: the sample ratio of earlier steps is among the figures. So it may be killed at
any point, and another one goes on. Two at once do no harm: a change counts only if nobody else made one in between.
"""
