"""A job of the pipeline: views by agent."""

from pyspark.sql import functions as sf

from barnabas_pipeline.jobs.derived import DerivedJob, day


class Agents(DerivedJob):
    name = "agents"
    kinds = ("views",)

    def partial(self, tables):
        views = tables["views"].groupBy(day("ts").alias("day"), "agent")
        return views.agg(sf.count("*").alias("count"))

    def part(self):
        return sf.col("day")

    def finish(self, condensed):
        return {"agents": condensed.groupBy("agent").agg(sf.sum("count").alias("views"))}
